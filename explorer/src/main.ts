import "./app.css";
import { mount } from "svelte";
import shared from "virtual:shared";
import App from "./App.svelte";
import * as derived from "./lib/derived";
import * as ranks from "./lib/derived-ranks";

// `derived` lets a test ask for any number that the page explains itself.
window.regardExplorer = { ...shared, derived: { ...derived, ...ranks } };
mount(App, { target: document.getElementById("app")! });

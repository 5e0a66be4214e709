import "./app.css";
import { mount } from "svelte";
import shared from "virtual:shared";
import App from "./App.svelte";

window.regardExplorer = shared;
mount(App, { target: document.getElementById("app")! });

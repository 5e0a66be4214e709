/** Loads the lessons: a second classic script, because a saved page cannot load modules. */

import type { Component } from "svelte";

let loading: Promise<Component> | null = null;

function element<K extends "script" | "link">(kind: K, values: object): Promise<void> {
  return new Promise((done, failed) => {
    const made = Object.assign(document.createElement(kind), values);
    made.onload = () => done();
    made.onerror = () => failed(new Error("The lessons could not be loaded from the server."));
    document.head.append(made);
  });
}

async function load(): Promise<Component> {
  if (import.meta.env.DEV) await import("../lessons/main");
  else
    await Promise.all([
      element("link", { rel: "stylesheet", href: "./lessons.css" }),
      element("script", { src: "./lessons.js" }),
    ]);
  if (!window.regardLessons) throw new Error("The lessons do not match this page; reload it.");
  return window.regardLessons;
}

/** The component with all lessons; a failed attempt can be repeated. */
export function loadLessons(): Promise<Component> {
  loading ??= load().catch((error: unknown) => {
    loading = null;
    throw error;
  });
  return loading;
}

"use strict";

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.append(text, ...children);
  return made;
}

function resolve(schema, node) {
  return node.$ref ? schema.components.schemas[node.$ref.split("/").pop()] : node;
}

function typeOf(schema, node) {
  if (node.$ref) return node.$ref.split("/").pop();
  if (node.anyOf) return node.anyOf.map((one) => typeOf(schema, one)).join(" or ");
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum) return node.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (node.type === "array") return `list of ${node.items ? typeOf(schema, node.items) : "values"}`;
  return node.type ?? "any";
}

function fields(schema, model) {
  const list = element("dl", "");
  const required = new Set(model.required ?? []);
  for (const [name, node] of Object.entries(model.properties ?? {})) {
    const usual = "default" in node ? `, default ${JSON.stringify(node.default)}` : "";
    const facts = typeOf(schema, node) + (required.has(name) ? ", required" : usual);
    list.append(
      element("dt", element("code", name), " ", element("span", facts)),
      element("dd", node.description ?? ""));
  }
  return list;
}

function operation(schema, path, method, node) {
  const sign = element("span", method.toUpperCase());
  sign.className = "method";
  const details = element("details", "",
    element("summary", sign, " ", element("code", path), ` ${node.summary}`));
  const request = node.requestBody?.content["application/json"]?.schema;
  if (request) details.append(element("h3", "Request"), fields(schema, resolve(schema, request)));
  const response = node.responses["200"]?.content?.["application/json"]?.schema;
  if (response?.$ref) details.append(element("h3", "Response"), fields(schema, resolve(schema, response)));
  const statuses = Object.entries(node.responses).filter(([code]) => code !== "200");
  if (statuses.length) {
    const list = element("ul", "");
    statuses.forEach(([code, one]) => list.append(element("li", `${code}: ${one.description}`)));
    details.append(element("h3", "Errors"), list);
  }
  return details;
}

fetch("/openapi.json").then((response) => response.json()).then((schema) => {
  const found = Object.entries(schema.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, node]) => operation(schema, path, method, node)));
  found[0].open = true;
  document.getElementById("paths").append(...found);
});

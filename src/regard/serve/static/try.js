"use strict";

const find = (id) => document.getElementById(id);
const KEPT = "regard-token"; // kept for this tab only
let models = [];
let running = null; // the request in progress

function headers() {
  const token = find("token").value.trim();
  return token ? { authorization: `Bearer ${token}` } : {};
}

function showError(message) {
  find("error").textContent = message;
  find("error").hidden = !message;
}

async function failureOf(response) {
  const body = await response.json().catch(() => ({}));
  return body.error?.message ?? `the server answered with status ${response.status}`;
}

async function loadModels() {
  const response = await fetch("/v1/models", { headers: headers() });
  if (response.status === 401) {
    find("token-row").hidden = false;
    showError(find("token").value ? await failureOf(response) : "");
    return;
  }
  models = (await response.json()).data;
  sessionStorage.setItem(KEPT, find("token").value.trim());
  showError(models.length ? "" : "The models are being loaded.");
  find("model").replaceChildren(...models.map((model) => new Option(model.id, model.id)));
  chooseModel();
  if (!models.length) setTimeout(loadModels, 1000);
}

function chooseModel() {
  const model = models.find((one) => one.id === find("model").value);
  if (!model) return;
  find("title").textContent = model.title ?? "";
  if (!find("text").value) find("text").value = model.example;
  find("languages").hidden = !model.languages.length;
  for (const id of ["source", "target"]) {
    find(id).replaceChildren(...model.languages.map((code) => new Option(code, code)));
  }
  if (model.languages.length > 1) find("target").selectedIndex = 1;
  showRequest();
}

function request() {
  const body = { model: find("model").value, input: find("text").value };
  const beam = Number(find("beam").value), best = Number(find("best").value);
  if (beam && beam !== 4) body.beam = beam;
  if (best > 1) {
    body.n_best = best;
    if (body.beam && body.beam < best) body.beam = best;
  } else {
    body.stream = true;
  }
  if (!find("languages").hidden) {
    body.source_language = find("source").value;
    body.target_language = find("target").value;
  }
  return body;
}

function showRequest() {
  const body = JSON.stringify(request()).replaceAll("'", "'\\''");
  const token = find("token-row").hidden ? "" : " \\\n  -H 'authorization: Bearer TOKEN'";
  find("request").textContent =
    `curl ${location.origin}/v1/generate \\\n  -H 'content-type: application/json'${token} \\\n  -d '${body}'`;
}

function showAnswers(answers) {
  const [best, ...others] = answers;
  find("output").textContent = best.text;
  find("tokens").replaceChildren(...best.tokens.map((token, index) => {
    const item = document.createElement("li"), share = document.createElement("small");
    const probability = Math.exp(best.logps[index]);
    item.className = `p${Math.min(3, Math.floor(probability * 4))}`;
    share.textContent = `${Math.round(100 * probability)} %`;
    item.append(token, share);
    return item;
  }));
  const unknown = best.unknown.length ? ` · unknown to the model: ${best.unknown.join(" ")}` : "";
  find("facts").textContent =
    `log p = ${best.logp.toFixed(3)} · confidence ${(100 * best.confidence).toFixed(1)} %${unknown}`;
  find("others").start = 2;
  find("others").replaceChildren(...others.map((answer) => {
    const item = document.createElement("li");
    item.textContent = `${answer.text} (${(100 * answer.confidence).toFixed(1)} %)`;
    return item;
  }));
  find("details").hidden = false;
}

function handleEvent(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data: "));
  const data = lines.map((line) => line.slice(6)).join("\n");
  if (!data || data === "[DONE]") return;
  const event = JSON.parse(data);
  if (event.piece !== undefined) find("output").textContent += event.piece;
  if (event.answer) showAnswers([event.answer]);
  if (event.error) showError(event.error.message);
}

async function readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(handleEvent);
  }
}

async function run() {
  running?.abort();
  const control = new AbortController();
  running = control;
  showError("");
  find("output").textContent = "";
  find("details").hidden = true;
  find("run").disabled = true;
  try {
    const body = request();
    const response = await fetch("/v1/generate", {
      method: "POST",
      headers: { "content-type": "application/json", ...headers() },
      body: JSON.stringify(body),
      signal: control.signal,
    });
    if (!response.ok) showError(await failureOf(response));
    else if (body.stream) await readEvents(response);
    else showAnswers((await response.json()).outputs[0]);
  } catch (error) {
    if (error.name !== "AbortError") showError("The server cannot be reached.");
  } finally {
    if (running === control) find("run").disabled = false;
  }
}

find("token").value = sessionStorage.getItem(KEPT) ?? "";
find("token").addEventListener("change", loadModels);
find("model").addEventListener("change", chooseModel);
find("form").addEventListener("input", showRequest);
find("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); run(); }
});
loadModels().catch(() => showError("The server cannot be reached."));

// Calls to the server: answers are kept, streams can be cancelled, and a saved page answers from what it holds.

import { askedForKey, credentials, currentKey } from "./key.js";

const ROOM = 96 << 20; // letters of maps that are kept; the oldest answers go first
const answers = new Map();
let recording = null;
const inlined = document.getElementById("recorded");
const recorded = inlined ? new Map(JSON.parse(inlined.textContent)) : null;

/** Whether this page was saved as one file and has no server. */
export const offline = recorded !== null;

/** The views whose answers such a page holds; null if all. */
export const savedViews = inlined?.dataset.views?.split(",") ?? null;

/** What such a page leaves out to stay small: {limit, parts}, the limit in MiB, the parts by model. */
export const leftOut = JSON.parse(inlined?.dataset.leftOut ?? "null");

/** An answer that is no answer: its code, both languages, and what a person may choose instead. */
export class Trouble extends Error {
  constructor(told) {
    super(told.message);
    Object.assign(this, told, { chinese: told.message_zh ?? "" });
  }
}

export async function ask(path, body = null, signal = undefined) {
  const key = keyOf(path, body);
  if (offline) return recordedAnswer(key);
  const answer = answers.has(key) ? answers.get(key) : await parsed(await send(path, body, signal));
  keep(key, answer);
  return answer;
}

/**
 * Events of a stream as they come: `{name, data}`. A stream that ends without `done` was cut off. With `again: false`
 * an answer that is kept comes from memory.
 */
export async function* stream(path, body, signal, { again = true } = {}) {
  const key = keyOf(path, body);
  if (offline || (!again && answers.has(key))) {
    const past = offline ? recordedAnswer(key) : answers.get(key);
    if (!offline) keep(key, past);
    for (const event of past) yield event;
    return;
  }
  const response = await send(path, body, signal);
  const past = [];
  for await (const event of events(response.body, signal)) {
    if (event.name === "error") throw new Trouble(event.data.error ?? event.data);
    past.push(event);
    yield event;
    if (event.name === "done") {
      keep(key, past);
      return;
    }
  }
  throw cutOff();
}

/** What is answered while `work` runs, new or not, as [question, answer]: the memory of a page without a server. */
export async function recordedWhile(work) {
  recording = new Map();
  try {
    await work();
    return [...recording];
  } finally {
    recording = null;
  }
}

export const wasCancelled = (error) => error?.name === "AbortError";

function keyOf(path, body) {
  return `${path} ${JSON.stringify(body)}`;
}

async function send(path, body, signal) {
  const key = currentKey(), response = await fetched(path, body, signal);
  if (response.ok) return response;
  if (response.status === 401 && await askedForKey(key)) return send(path, body, signal);
  const told = await response.json().catch(() => null);
  throw new Trouble(told?.error?.code ? told.error : { code: "http", message: `HTTP ${response.status}` });
}

async function fetched(path, body, signal) {
  try {
    const headers = body === null ? credentials() : { ...credentials(), "Content-Type": "application/json" };
    const post = { method: "POST", headers, body: JSON.stringify(body), signal };
    return await fetch(`/api/v1${path}`, body === null ? { headers, signal } : post);
  } catch (error) {
    if (wasCancelled(error)) throw error;
    throw cutOff();
  }
}

async function parsed(response) {
  try {
    return await response.json();
  } catch (error) {
    if (wasCancelled(error)) throw error;
    throw cutOff();
  }
}

async function* events(body, signal) {
  const reader = body.getReader(), decoder = new TextDecoder();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) if (/^data:/m.test(block)) yield event(block);
    }
  } catch (error) {
    if (wasCancelled(error) || signal?.aborted) throw new DOMException("", "AbortError");
    throw error instanceof Trouble ? error : cutOff();
  } finally {
    reader.cancel().catch(() => {});
  }
}

function event(block) {
  const lines = block.split("\n");
  const name = lines.find((line) => line.startsWith("event:"))?.slice(6).trim() ?? "message";
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
  return { name, data: JSON.parse(data || "null") };
}

const cutOff = () => new Trouble({ code: "unreachable", message: "" });

function recordedAnswer(key) {
  if (recorded.has(key)) return recorded.get(key);
  throw new Trouble({ code: "not_saved", message: "" });
}

function keep(key, answer) {
  recording?.set(key, answer);
  answers.delete(key);
  answers.set(key, answer);
  let size = 0;
  for (const [each, { block }] of [...answers].reverse()) {
    size += block?.length ?? 0;
    if (size > ROOM && each !== key) answers.delete(each);
  }
}

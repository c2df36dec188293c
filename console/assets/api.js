// Requests to the engine. Every one has the header that the engine asks for, and the token if there is one.

const tokenKey = "perigee.token";

let token = sessionStorage.getItem(tokenKey) || "";

export function setToken(value) {
  token = value;
  sessionStorage.setItem(tokenKey, value);
}

// A Fault is an error that the engine has answered with: a message, a hint, and maybe a place.
export class Fault extends Error {
  constructor(status, { error, hint, line, column }) {
    super(error);
    Object.assign(this, { status, hint, line, column });
  }
}

// send posts a body and returns the response, if the engine did what was asked.
export async function send(path, body = {}, { signal, accept } = {}) {
  const headers = { "Content-Type": "application/json", "Perigee-Console": "1" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (accept) headers.Accept = accept;
  let response;
  try {
    response = await fetch(`/console/api/${path}`, {
      method: "POST", headers, body: JSON.stringify(body), signal, credentials: "omit", cache: "no-store",
    });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Fault(0, { error: "The engine does not answer.", hint: "It may have ended: see its log." });
  }
  if (response.ok) return response;
  const text = await response.text();
  let fault = { error: `The engine answered with status ${response.status}.` };
  try {
    fault = JSON.parse(text);
  } catch {
    if (text.trim()) fault = { error: text.trim() };
  }
  throw new Fault(response.status, fault);
}

// parse reads JSON, and keeps whole numbers that are too large for this language as text.
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? context.source : value);
}

// call posts a body and returns the JSON of the answer.
export async function call(path, body, options) {
  return parse(await (await send(path, body, options)).text());
}

// lines posts a body and returns the documents of an answer that has one in each line, at most limit.
export async function lines(path, body, { signal, limit = Infinity } = {}) {
  const stop = new AbortController();
  signal?.addEventListener("abort", () => stop.abort());
  const response = await send(path, body, { signal: stop.signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const found = [];
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return { found, more: false };
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.trim()) continue;
      if (found.length === limit) {
        stop.abort();
        return { found, more: true };
      }
      found.push(parse(part));
    }
  }
}

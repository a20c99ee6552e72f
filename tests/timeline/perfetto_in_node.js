// Runs Perfetto's own trace processor, built for browsers, in node: RPC messages come on stdin and answers go to stdout.
// Usage: node perfetto_in_node.js FOLDER, where FOLDER holds engine_bundle.js and the .wasm files beside it.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const toStderr = (...words) => fs.writeSync(2, words.join(" ") + "\n");

class XMLHttpRequest {  // how the bundle asks for its .wasm
  open(_method, url) {
    this.url = url;
  }

  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.status = 200;
    this.response = new browser.Uint8Array(bytes).buffer;
    this.onload?.();
  }
}

const worker = {  // as much of a web worker as the bundle looks at
  console: { log: toStderr, warn: toStderr, error: toStderr },
  location: { href: "http://localhost/engine_bundle.js", protocol: "http:", host: "localhost", pathname: "/" },
  WorkerGlobalScope: class {},
  navigator: {},
  importScripts() {},
  crypto: globalThis.crypto,
  XMLHttpRequest, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout,
};
worker.self = worker;
vm.createContext(worker);
const browser = vm.runInContext("({ Uint8Array })", worker);  // of the worker's realm: the bundle asks "instanceof"
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

function writeAll(bytes) {
  for (let written = 0; written < bytes.length;) {
    try {
      written += fs.writeSync(1, bytes, written);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

const port = { postMessage: (data) => writeAll(Buffer.from(data)) };
worker.onmessage({ data: port });
setTimeout(() => {  // the module starts in a later turn of the event loop
  process.stdin.on("data", (bytes) => port.onmessage({ data: new browser.Uint8Array(bytes) }));
}, 500);

'use strict';
// Connections of a sandbox. The kernel knows no network here: connect(2) on any
// unix socket is answered by the parent with a stream to itself, whatever the
// address. The first 17 bytes say what the stream is for: 'C' asks for
// destinations, 'T' and 16 digits take the one that was dialled, 'A' speaks HTTP
// with the parent itself. What may be dialled is decided there.
const net = require('net');
const tls = require('tls');
const dns = require('dns');
const http = require('http');
const https = require('https');
const { WriteWrap } = process.binding('stream_wrap');

const PARENT = { path: process.env.TOKENKEEP_PARENT || '/run/parent' };
const destination = Symbol('destination');
const inner = Symbol('inner');
const { parse, stringify } = JSON;
const connect = net.Socket.prototype.connect;
const connectTLS = tls.connect;

let used = false; // since the process began

function open(kind) {
  used = true;
  const socket = new net.Socket();
  socket[inner] = true;
  connect.call(socket, PARENT);
  socket.write(kind.repeat(17));
  return socket;
}

// --- asking for destinations: lines of JSON over one connection

let asking = null;
let asked = 0;
const waiting = new Map();

function ask(host, port, answered) {
  if (!asking) {
    const socket = asking = open('C');
    let rest = '';
    socket.setEncoding('utf8');
    socket.on('data', (more) => {
      rest += more;
      for (let end; (end = rest.indexOf('\n')) >= 0; rest = rest.slice(end + 1)) {
        const told = parse(rest.slice(0, end));
        const waits = waiting.get(told.id);
        waiting.delete(told.id);
        if (!waiting.size) socket.unref();
        if (waits) waits(told);
      }
    });
    const gone = () => {
      if (asking !== socket) return;
      asking = null;
      const all = [...waiting.values()];
      waiting.clear();
      for (const waits of all) waits({ code: 'ECONNRESET' });
    };
    socket.on('error', gone);
    socket.on('close', gone);
  }
  waiting.set(++asked, answered);
  asking.ref();
  asking.write(stringify({ id: asked, host, port }) + '\n');
}

function failure(syscall, code, host, port) {
  const e = new Error(`${syscall} ${code} ${host}${port ? ':' + port : ''}`);
  return Object.assign(e, { code, syscall, hostname: host, address: host, port });
}

// --- net and tls, so that every client of the standard library works unchanged

function patchedConnect(...args) {
  if (this[inner]) return connect.apply(this, args);
  const [options, done] = Array.isArray(args[0]) && args.length === 1 ? args[0] : net._normalizeArgs(args);
  const to = options[destination] || (options.path ? null : { host: String(options.host || 'localhost'), port: +options.port });
  if (!to) return connect.apply(this, args);
  if (done) this.once('connect', done);
  this.connecting = true;
  this._host = to.host;
  ask(to.host, to.port, (told) => {
    if (this.destroyed) return;
    if (told.code) {
      this.destroy(failure(told.code === 'ENOTFOUND' ? 'getaddrinfo' : 'connect', told.code, to.host, to.port));
      return;
    }
    this.prependOnceListener('connect', () => {
      // Before TLS begins, on the bare stream below it.
      const handle = this._handle && (this._handle._parent || this._handle);
      if (!handle) return;
      const write = new WriteWrap();
      write.handle = handle;
      write.oncomplete = () => {};
      handle.writeUtf8String(write, told.ticket);
    });
    this.connecting = false;
    connect.call(this, PARENT);
    Object.defineProperty(this, 'remoteAddress', { value: told.address, configurable: true });
    Object.defineProperty(this, 'remotePort', { value: to.port, configurable: true });
  });
  return this;
}

function patchedTLS(...args) {
  const [options, done] = net._normalizeArgs(args);
  const given = [args[1], args[2]].find((a) => a && typeof a === 'object');
  if (given) Object.assign(options, given);
  if (!options.socket && !options.path) {
    options[destination] = { host: String(options.host || 'localhost'), port: +options.port };
    options.host = options[destination].host;
    options.path = PARENT.path;
  }
  return done ? connectTLS(options, done) : connectTLS(options);
}

// Names are resolved by the parent, when it dials.
function lookup(host, options, done) {
  if (typeof options === 'function') [options, done] = [{}, options];
  const family = net.isIP(host);
  const all = options && options.all;
  process.nextTick(() => {
    if (!family) done(failure('getaddrinfo', 'ENOTFOUND', host));
    else if (all) done(null, [{ address: host, family }]);
    else done(null, host, family);
  });
}

// --- the service's own API; the parent knows whose call it is

const api = new http.Agent({ keepAlive: true, maxSockets: 4 });
api.createConnection = () => open('A');

// request calls the service and gives the answer whole. Bodies are texts.
function request({ method, path, headers, body }) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) };
    const call = http.request({ agent: api, method, path, host: 'vault', headers: { ...headers, ...length } }, (response) => {
      let told = '';
      response.setEncoding('utf8');
      response.on('data', (more) => { told += more; });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: told }));
    });
    call.on('error', reject);
    call.end(body);
  });
}

// endCall closes the connections to the service; the parent does so too.
function endCall() {
  if (used) api.destroy();
}

// wasUsed tells whether there may be connections that the other side closed.
const wasUsed = () => used;

function install() {
  net.Socket.prototype.connect = patchedConnect;
  for (const name of ['setNoDelay', 'setKeepAlive']) net.Socket.prototype[name] = function same() { return this; };
  tls.connect = patchedTLS;
  dns.lookup = lookup;
  dns.promises.lookup = (host, options) => new Promise((resolve, reject) => {
    lookup(host, options || {}, (e, address, family) => {
      if (e) reject(e);
      else resolve(family ? { address, family } : address);
    });
  });
  http.globalAgent = new http.Agent({ keepAlive: true });
  https.globalAgent = new https.Agent({ keepAlive: true });
}

module.exports = { endCall, install, request, wasUsed };

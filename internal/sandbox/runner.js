'use strict';
// Runs the code of one program, one call at a time, inside a sandbox.
//
// Nothing here is a wall: code that runs in this process may change all of it,
// and the kernel and the parent hold whatever it does. This file keeps honest
// programs apart from the protocol, and answers each call once.
//
// Descriptor 3 is a blocking stream of frames, each way: length of the rest
// (32 bits, little end first), type (8 bits), nonce (8 bytes), payload. Between
// calls the main thread waits in read(2), so that timers left over get no turn.
const fs = require('fs');
const vm = require('vm');
const util = require('util');
const { Writable } = require('stream');
const network = require('./network.js');
const runtime = require('./runtime.js');

const headerPrefix = process.argv[2] || undefined;
process.argv.length = 2; // code sees nothing of how the server is set up

const CONTROL = 3;
const IN = { program: 1, call: 2, check: 3 };
const OUT = { ready: 0, console: 1, value: 2, thrown: 3, failed: 4, checked: 5, fatal: 6 };
// Why a call failed without a throw; the parent has the words.
const FAILED = { noFunction: 1, circular: 2, bigint: 3, notData: 4, toJSON: 5, tooLarge: 6, unsettled: 7 };
const HEADERS = 1; // flags of a call
const CLIENT = 2;
const MAX_RESULT = 5 << 20;
const MAX_CONSOLE = 64 << 10;
const MAX_TEXT = 4096;

// Kept before any code of a tenant can replace them.
const { readSync, writeSync } = fs;
const { parse, stringify } = JSON;
const { allocUnsafe, byteLength } = Buffer;
const text = Buffer.prototype.toString;
const fill = Buffer.prototype.fill;
const { setImmediate: turn, Error: PlainError, SyntaxError: PlainSyntaxError, String: toText } = globalThis;
const { compileFunction } = vm;
const formatText = util.formatWithOptions;
const leave = process.reallyExit;

let received = allocUnsafe(64 << 10);
let length = 0;

// take waits for the next frame and leaves none of it behind in the buffer.
function take() {
  for (;;) {
    if (length >= 4) {
      const end = 4 + received.readUInt32LE(0);
      if (length >= end) {
        const frame = allocUnsafe(end - 4);
        received.copy(frame, 0, 4, end);
        received.copyWithin(0, end, length);
        fill.call(received, 0, length - end, length);
        length -= end;
        return frame;
      }
      if (received.length < end) {
        const larger = allocUnsafe(end);
        received.copy(larger, 0, 0, length);
        fill.call(received, 0);
        received = larger;
      }
    }
    const n = readSync(CONTROL, received, length, received.length - length, null);
    if (n === 0) leave(0);
    length += n;
  }
}

let nonce = Buffer.alloc(8);

function send(type, payload) {
  const size = byteLength(payload);
  const frame = allocUnsafe(13 + size);
  frame.writeUInt32LE(9 + size, 0);
  frame[4] = type;
  nonce.copy(frame, 5);
  frame.write(payload, 13);
  for (let sent = 0; sent < frame.length;) sent += writeSync(CONTROL, frame, sent, frame.length - sent);
  fill.call(frame, 0);
}

// --- console

let consoleLeft = 0;

function print(level, words) {
  if (consoleLeft <= 0) return;
  let line = stringify({ level, text: words.length > consoleLeft ? words.slice(0, consoleLeft) : words });
  if (byteLength(line) + 1 > consoleLeft) {
    line = '{"level":"warn","text":"output beyond 64 KiB was dropped"}';
    consoleLeft = 0;
  } else {
    consoleLeft -= byteLength(line) + 1;
  }
  send(OUT.console, line);
}

function replaceConsole() {
  const stream = (level) => new Writable({
    decodeStrings: false,
    write(chunk, _, done) { print(level, toText(chunk).replace(/\n$/, '')); done(); },
  });
  const stdout = stream('log');
  const stderr = stream('error');
  const replaced = new console.Console({ stdout, stderr, colorMode: false });
  for (const level of ['debug', 'info', 'warn']) {
    replaced[level] = (...args) => print(level, formatText({ colors: false }, ...args));
  }
  Object.defineProperty(globalThis, 'console', { value: replaced, writable: true, configurable: true });
  Object.defineProperty(process, 'stdout', { value: stdout, configurable: true });
  Object.defineProperty(process, 'stderr', { value: stderr, configurable: true });
}

// --- programs

const PARAMETERS = ['exports', 'require', 'module', '__filename', '__dirname'];
const extra = __dirname + '/extra';
const tenantRequire = runtime.createRequire({ extra: fs.existsSync(extra) ? extra : null });
let sources = null;
const entries = new Map();

// compile parses code as the body of a module. Of code that does not parse, the
// error names the position.
function compile(source, filename) {
  try {
    return compileFunction(source, PARAMETERS, { filename });
  } catch (e) {
    const { line, column, message } = position(e, source, filename);
    throw new PlainSyntaxError('the code does not parse: line ' + line + ', column ' + column + ': ' + message);
  }
}

// position returns where code does not parse. The engine marks no column when
// the code ends too early: the position is then the end of the code.
function position(e, source, filename) {
  const message = toText(e.message);
  if (message === 'Unexpected end of input') {
    const rows = source.split(/\r\n|[\n\r\u2028\u2029]/);
    return { line: rows.length, column: rows[rows.length - 1].length + 1, message };
  }
  const lines = toText(e.stack).split('\n');
  const at = lines[0].startsWith(filename + ':') ? +lines[0].slice(filename.length + 1) : 1;
  const caret = lines.findIndex((l, i) => i > 1 && /^\s*\^+$/.test(l));
  return { line: at || 1, column: caret > 0 ? lines[caret].indexOf('^') + 1 : 1, message };
}

function load(entry) {
  const filename = '/program/' + entry + '.js';
  const body = compile(sources[entry], filename);
  const module = { exports: {}, id: filename, filename, loaded: false, children: [], paths: [] };
  body.call(module.exports, module.exports, tenantRequire, module, filename, '/program');
  module.loaded = true;
  let found = module.exports;
  if (typeof found !== 'function' && found) found = found.default;
  return typeof found === 'function' ? found : null;
}

// describe tells what was thrown; it must not itself throw, whatever it meets.
function describe(thrown) {
  try {
    const told = stringify(runtime.describeError(thrown));
    if (byteLength(told) <= MAX_RESULT) return told;
  } catch (_) { /* told below */ }
  let message = '';
  try { message = toText(thrown instanceof PlainError ? thrown.message : thrown).slice(0, MAX_TEXT); } catch (_) { /* no words */ }
  return stringify({ name: 'Error', message });
}

// result gives the JSON of what was returned, '' for nothing, or a number of FAILED.
function result(value) {
  if (value === undefined) return '';
  if (typeof value === 'function' || typeof value === 'symbol') return FAILED.notData;
  let json;
  try {
    json = stringify(value);
  } catch (e) {
    const words = e instanceof TypeError ? toText(e.message) : '';
    if (words.startsWith('Converting circular')) return FAILED.circular;
    if (words.includes('BigInt')) return FAILED.bigint;
    return words || !(e instanceof RangeError) ? FAILED.toJSON : FAILED.tooLarge;
  }
  if (json === undefined) return FAILED.notData;
  return byteLength(json) > MAX_RESULT ? FAILED.tooLarge : json;
}

let running = false;

function answer(type, payload) {
  if (!running) return;
  running = false;
  try { network.endCall(); } catch (_) { /* changed by the code; the parent closes them too */ }
  send(type, payload);
  next();
}

async function call(frame) {
  const flags = frame[9];
  const from = 11 + frame[10];
  const entry = text.call(frame, 'utf8', 11, from);
  let handler = entries.get(entry);
  if (!handler) {
    try {
      handler = load(entry);
    } catch (e) {
      return answer(OUT.fatal, describe(e));
    }
    if (!handler) return answer(OUT.failed, toText(FAILED.noFunction));
    entries.set(entry, handler);
  }
  let value;
  try {
    const given = parse(text.call(frame, 'utf8', from));
    fill.call(frame, 0);
    if (flags & HEADERS && given.args) given.args.headers = runtime.headersObject(given.args.headers || {});
    const bt = flags & CLIENT ? runtime.createClient(network.request, { headerPrefix }) : null;
    value = await handler({ args: given.args, configuration: given.configuration, bt });
  } catch (e) {
    return answer(OUT.thrown, describe(e));
  }
  const json = result(value);
  return typeof json === 'number' ? answer(OUT.failed, toText(json)) : answer(OUT.value, json);
}

// check parses without running, and tells where it failed.
function check(source) {
  try {
    compileFunction(source, PARAMETERS, { filename: 'program' });
    return '';
  } catch (e) {
    return stringify(position(e, source, 'program'));
  }
}

// next waits for a call and gives the event loop a turn before it; a whole one
// when there were connections, so that those that the other side closed meanwhile
// are known to be closed. The first turn may be the rest of an interrupted one.
function next() {
  for (;;) {
    const frame = take();
    nonce = frame.subarray(1, 9);
    switch (frame[0]) {
      case IN.program:
        sources = parse(text.call(frame, 'utf8', 9));
        break;
      case IN.check:
        send(OUT.checked, check(text.call(frame, 'utf8', 9)));
        break;
      case IN.call:
        nonce = Buffer.from(nonce);
        consoleLeft = MAX_CONSOLE;
        running = true;
        if (network.wasUsed()) turn(() => turn(call, frame));
        else turn(call, frame);
        return;
      default:
        leave(1);
    }
  }
}

process.on('beforeExit', () => answer(OUT.failed, toText(FAILED.unsettled)));
process.on('uncaughtException', (e) => answer(OUT.fatal, describe(e)));

// What a blank process does before it is needed, off the path of any call.
function warm() {
  for (const name of Object.keys(process.env)) if (!['PATH', 'HOME', 'LANG', 'TZ', 'NODE_ENV'].includes(name)) delete process.env[name];
  for (const name of ['assert', 'buffer', 'crypto', 'dns', 'events', 'http', 'https', 'net', 'os', 'path', 'querystring', 'stream',
    'string_decoder', 'timers', 'tls', 'url', 'util', 'zlib']) require(name);
  const crypto = require('crypto');
  crypto.createHmac('sha256', 'k').update('x').digest('hex');
  crypto.randomBytes(16);
  require('tls').createSecureContext(); // reads the roots once
  sources = { main: 'module.exports = async (req) => ({ raw: req.args })' };
  for (let i = 0; i < 5; i++) {
    load('main');
    parse(stringify({ a: [1, 2, { b: 'x' }] }));
  }
  sources = null;
}

network.install();
warm();
// Threads would not be frozen between calls, and nothing here can be started
// or listened on anyway; their absence says so sooner than an error deep down.
delete require('worker_threads').Worker;
replaceConsole();
send(OUT.ready, '');
turn(next);

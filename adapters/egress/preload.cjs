'use strict';
/**
 * Gives Node programs in a sandbox network access, because they ignore proxy variables. Every TCP connection becomes a
 * CONNECT tunnel over the unix socket of the proxy, which decides about it. The file is loaded into the server with
 * --require, so it is plain CommonJS without dependencies. It patches the function under fetch, http, https and net.
 */
const net = require('node:net');
const tls = require('node:tls');

const SOCKET = process.env.TOLLGATE_EGRESS;
/** Hosts that mean the sandbox itself. */
const OWN = new Set((process.env.NO_PROXY ?? '').split(',').filter((name) => name !== ''));
const PROXY = new URL(process.env.HTTP_PROXY ?? 'http://127.0.0.1:3128');
const MAX_ANSWER = 16 * 1024;

/**
 * Reads the arguments of net.connect and tls.connect into one object and the callback. The forms are (options),
 * (port, host), (path), and the array that Node passes internally.
 */
function readArguments(given) {
  const list = Array.isArray(given[0]) ? given[0] : given;
  const callback = list.findLast((one) => typeof one === 'function');
  const [first, second] = list;
  if (typeof first === 'object' && first !== null) return { options: first, callback };
  const more = list.find((one) => typeof one === 'object' && one !== null) ?? {};
  if (typeof first === 'string' && !/^\d+$/.test(first)) return { options: { path: first, ...more }, callback };
  return { options: { port: Number(first), ...(typeof second === 'string' && { host: second }), ...more }, callback };
}

/** Returns the host and port for the proxy. Undefined for unix sockets and the sandbox's own loopback. */
function targetOf({ path, port, host }) {
  if (path !== undefined && path !== null) return undefined;
  const name = host === undefined || host === null || host === '' ? 'localhost' : String(host);
  const isOwn = OWN.has(name) || (OWN.has('127.0.0.1') && /^127\./.test(name));
  return isOwn ? undefined : { host: net.isIPv6(name) ? `[${name}]` : name, port: Number(port) };
}

function isProxy({ path, port, host }) {
  return (
    (path === undefined || path === null) &&
    Number(port) === Number(PROXY.port) &&
    (host === PROXY.hostname || host === 'localhost')
  );
}

const connect = net.Socket.prototype.connect;

/** Connects a socket through the proxy. It counts as connected once the tunnel is open, so its user waits for that. */
function openTunnel(socket, { host, port }) {
  const own = new Map(['emit', 'push'].map((name) => [name, Object.getOwnPropertyDescriptor(socket, name)]));
  const { emit, push } = socket;
  let answer = Buffer.alloc(0);
  const restore = () => {
    for (const [name, before] of own) {
      delete socket[name];
      if (before !== undefined) Object.defineProperty(socket, name, before);
    }
    socket.connecting = false;
  };
  const fail = (code, reason) => {
    restore();
    socket.destroy(
      Object.assign(new Error(`connect ${code} ${host}:${port} (${reason})`), {
        code,
        syscall: 'connect',
        address: host,
        port,
      }),
    );
  };
  const finish = () => {
    const end = answer.indexOf('\r\n\r\n');
    if (end < 0)
      return answer.length > MAX_ANSWER ? fail('ECONNRESET', 'Tollgate: the proxy did not answer') : undefined;
    const head = answer.toString('latin1', 0, end);
    if (!/^HTTP\/1\.1 200 /.test(head)) {
      const refusal = /^x-tollgate-refusal: (.*)$/im.exec(head)?.[1] ?? 'refused';
      return fail(refusal === 'unresolved' ? 'ENOTFOUND' : 'ECONNREFUSED', `Tollgate: ${refusal}`);
    }
    restore();
    socket.emit('connect');
    socket.emit('ready');
    const rest = answer.subarray(end + 4);
    if (rest.length > 0) socket.push(rest);
  };
  socket.emit = function (event, ...values) {
    if (event === 'ready') return true;
    if (event !== 'connect') return emit.call(this, event, ...values);
    // Data of the user waits in the socket for `connect`. The request for the tunnel must be sent before it.
    socket._writeGeneric(
      false,
      `CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`,
      'latin1',
      () => undefined,
    );
    socket._read(0);
    socket.connecting = true;
    return true;
  };
  socket.push = function (chunk, ...more) {
    if (chunk === null) {
      fail('ECONNRESET', 'Tollgate: the proxy closed the connection');
      return false;
    }
    if (!socket.connecting) return push.call(this, chunk, ...more);
    answer = Buffer.concat([answer, chunk]);
    finish();
    return true;
  };
  return connect.call(socket, { path: SOCKET });
}

function patch() {
  net.Socket.prototype.connect = function (...given) {
    const { options, callback } = readArguments(given);
    // Clients that use the proxy variables reach the proxy over its socket as well.
    if (isProxy(options)) return connect.call(this, { path: SOCKET }, ...(callback === undefined ? [] : [callback]));
    const target = targetOf(options);
    if (target === undefined || this instanceof tls.TLSSocket) return connect.apply(this, given);
    if (callback !== undefined) this.once('connect', callback);
    return openTunnel(this, target);
  };

  const connectTls = tls.connect;
  tls.connect = function (...given) {
    const { options, callback } = readArguments(given);
    const target = targetOf(options);
    if (target === undefined || options.socket) return connectTls.apply(this, given);
    // TLS treats a socket without a handle as a plain stream, and starts once it is connected.
    const raw = new net.Socket();
    const secure = connectTls.call(this, { ...options, socket: raw }, callback);
    raw.on('error', (error) => secure.destroy(error));
    // An idle connection must not keep the program alive.
    for (const name of ['ref', 'unref']) {
      const before = secure[name];
      secure[name] = function () {
        raw[name]();
        return before.call(this);
      };
    }
    if (options.timeout) secure.setTimeout(options.timeout);
    raw.connect({ host: options.host, port: options.port });
    return secure;
  };
  require('node:module').syncBuiltinESMExports();
}

if (SOCKET !== undefined) patch();

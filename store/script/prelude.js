// What a script finds: the server-side JavaScript API of the service. It is run once for each run, in a runtime of its own,
// and gets what reaches the gateway: ask sends a request about items and returns its answer, both as JSON.
(function (ask, env) {
  "use strict";
  const parse = JSON.parse, stringify = JSON.stringify, encode = encodeURIComponent;
  const text = String, isArray = Array.isArray, ErrorOf = Error;
  const queue = [];
  const state = { request: undefined, response: undefined, requestSet: false, responseSet: false, log: "", aborted: null };

  const codes = Object.freeze({
    BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412, RequestEntityTooLarge: 413,
    RetryWith: 449, InternalServerError: 500,
  });

  function failure(number, message) {
    const e = new ErrorOf(message);
    e.number = number;
    e.body = message;
    return e;
  }

  // request sends one request. What fails without a callback to hear of it ends the run, and nothing is written. A callback is
  // called when the function that is running has returned, so that a chain of them does not deepen the stack.
  function request(what, callback, args) {
    if (callback !== undefined && callback !== null && typeof callback !== "function") {
      throw failure(400, "the callback is not a function");
    }
    const answer = parse(ask(stringify(what)));
    if (answer.refused) return false;
    let err;
    if (answer.status >= 300 && answer.status !== 304) {
      err = failure(answer.status, answer.message);
      if (!callback) throw err;
    }
    if (callback) queue.push(function () { callback.apply(undefined, args(err, answer)); });
    return true;
  }

  function split(options, callback) {
    if (typeof options === "function") return [{}, options];
    return [options === undefined || options === null ? {} : options, callback];
  }

  function bodyOf(body) {
    if (body === null || typeof body !== "object" || isArray(body)) throw failure(400, "an item is a JSON object");
    return stringify(body);
  }

  function etagOf(options) { return options.etag === undefined || options.etag === null ? "" : text(options.etag); }

  function one(err, answer) {
    return err ? [err, undefined, {}] : [undefined, answer.body === undefined ? undefined : answer.body, { notModified: answer.status === 304 || undefined }];
  }

  function page(err, answer) {
    return err ? [err, undefined, {}] : [undefined, answer.body, { continuation: answer.continuation }];
  }

  const collection = {
    getSelfLink() { return env.selfLink; },
    getAltLink() { return env.altLink; },
    createDocument(link, body, options, callback) {
      [options, callback] = split(options, callback);
      return request({ op: "create", link: text(link), body: bodyOf(body), noId: options.disableAutomaticIdGeneration === true }, callback, one);
    },
    upsertDocument(link, body, options, callback) {
      [options, callback] = split(options, callback);
      return request({ op: "upsert", link: text(link), body: bodyOf(body), etag: etagOf(options), noId: options.disableAutomaticIdGeneration === true }, callback, one);
    },
    replaceDocument(link, body, options, callback) {
      [options, callback] = split(options, callback);
      return request({ op: "replace", link: text(link), body: bodyOf(body), etag: etagOf(options) }, callback, one);
    },
    deleteDocument(link, options, callback) {
      [options, callback] = split(options, callback);
      return request({ op: "delete", link: text(link), etag: etagOf(options) }, callback, function (err) { return [err, {}]; });
    },
    readDocument(link, options, callback) {
      [options, callback] = split(options, callback);
      const none = options.ifNoneMatch === undefined ? "" : text(options.ifNoneMatch);
      return request({ op: "read", link: text(link), noneMatch: none }, callback, one);
    },
    readDocuments(link, options, callback) {
      [options, callback] = split(options, callback);
      return request({ op: "query", link: text(link), query: { query: "SELECT * FROM c" }, pageSize: options.pageSize, continuation: options.continuation }, callback, page);
    },
    queryDocuments(link, query, options, callback) {
      [options, callback] = split(options, callback);
      if (query instanceof Function) throw failure(400, "a query is a text or {query, parameters}; filter takes a function");
      const spec = typeof query === "object" && query !== null ? query : { query: text(query) };
      return request({ op: "query", link: text(link), query: spec, pageSize: options.pageSize, continuation: options.continuation }, callback, page);
    },
  };
  for (const name of ["createAttachment", "readAttachment", "readAttachments", "queryAttachments", "replaceAttachment", "upsertAttachment", "deleteAttachment"]) {
    collection[name] = function () { throw failure(400, name + ": attachments are not served"); };
  }

  // Queries by functions: steps over the items of the logical partition, in the order in which they are named.
  const steps = {
    filter: (f) => (rows) => rows.filter((row) => f(row)),
    map: (f) => (rows) => rows.map((row) => f(row)),
    pluck: (name) => (rows) => rows.map((row) => row[name]).filter((value) => value !== undefined),
    flatten: (shallow) => (rows) => rows.flat(shallow === true ? 1 : Infinity),
    sortBy: (f) => (rows) => sorted(rows, f, 1),
    sortByDescending: (f) => (rows) => sorted(rows, f, -1),
    unwind: (inner, result) => (rows) => rows.flatMap((row) => {
      const members = typeof inner === "function" ? inner(row) : row[inner];
      return isArray(members) ? members.map((member) => result ? result(row, member) : [row, member]) : [];
    }),
  };

  function sorted(rows, f, sign) {
    const key = typeof f === "function" ? f : (row) => f === undefined ? row : row[f];
    return rows.map((row) => [key(row), row]).sort((a, b) => a[0] < b[0] ? -sign : a[0] > b[0] ? sign : 0).map((pair) => pair[1]);
  }

  function perform(made, options, callback) {
    [options, callback] = split(options, callback);
    const accepted = collection.queryDocuments(env.selfLink, "SELECT * FROM c", options, function (err, rows, info) {
      if (!err) {
        for (const step of made) rows = step(rows);
      }
      if (callback) return callback(err, rows, info);
      if (err) throw err;
      response.setBody(rows);
    });
    return { isAccepted: accepted };
  }

  function chainOf(made) {
    const chain = { value(options, callback) { return perform(made, options, callback); } };
    for (const name of Object.keys(steps)) {
      chain[name] = function () { return chainOf(made.concat(steps[name].apply(undefined, arguments))); };
    }
    return chain;
  }
  collection.chain = function () { return chainOf([]); };
  for (const name of Object.keys(steps)) {
    // name(argument, ..., [options], [callback]): the arguments of the step come first.
    const count = name === "unwind" ? 2 : 1;
    collection[name] = function () {
      let n = Math.min(count, arguments.length);
      if (name === "flatten" && typeof arguments[0] !== "boolean") n = 0;
      const own = Array.prototype.slice.call(arguments, 0, n), rest = Array.prototype.slice.call(arguments, n);
      return perform([steps[name].apply(undefined, own)], rest[0], rest[1]);
    };
  }

  function message(kind) {
    const values = env[kind + "Values"] || {};
    return {
      getBody() { return state[kind]; },
      setBody(body) { state[kind] = body; state[kind + "Set"] = true; },
      getValue(name) { return name === "Body" ? state[kind] : values[name]; },
      setValue(name, value) {
        if (name === "Body") return this.setBody(value);
        values[name] = value;
      },
      appendValue(name, value) {
        const before = this.getValue(name);
        this.setValue(name, before === undefined ? value : text(before) + text(value));
      },
      getOperationType() { return env.operation; },
      getActivityId() { return env.activity; },
      getStatusCode() { return env.status; },
      getMaxResourceQuota() { return ""; },
      getResourceQuotaCurrentUsage() { return ""; },
    };
  }
  if (env.request !== undefined) state.request = env.request;
  if (env.response !== undefined) state.response = env.response;
  const response = message("response"), asked = env.trigger ? message("request") : undefined;

  const context = {
    getCollection() { return collection; },
    getRequest() {
      if (!asked) throw failure(400, "a stored procedure has no request; its arguments are those of the function");
      return asked;
    },
    getResponse() { return response; },
    abort(err) { throw err instanceof ErrorOf ? err : failure(400, text(err)); },
  };

  const shorthand = Object.create(collection);
  for (const name of Object.keys(context)) shorthand[name] = context[name];
  shorthand.response = response;
  if (asked) shorthand.request = asked;

  function format(args) {
    let out = "", i = 0;
    if (typeof args[0] === "string") {
      i = 1;
      out = args[0].replace(/%[sdifjoO%]/g, function (verb) {
        if (verb === "%%") return "%";
        if (i >= args.length) return verb;
        const value = args[i++];
        return verb === "%s" || typeof value !== "object" ? text(value) : stringify(value);
      });
    }
    for (; i < args.length; i++) {
      const value = args[i];
      out += (out === "" ? "" : " ") + (typeof value === "object" ? stringify(value) : text(value));
    }
    return out;
  }
  function log() {
    if (env.logging && state.log.length < env.logMax) state.log += (state.log === "" ? "" : "\n") + format(arguments).slice(0, env.logMax);
  }
  const console = { log: log, info: log, warn: log, error: log, debug: log, trace: log };

  const globals = { console: console, ErrorCodes: codes };
  if (!env.pure) Object.assign(globals, { getContext() { return context; }, __: shorthand });
  for (const name of Object.keys(globals)) {
    Object.defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true, enumerable: false });
  }
  for (const object of [collection, context, codes, console]) Object.freeze(object);

  // next runs the first callback that waits; false if there is none.
  function next() {
    const callback = queue.shift();
    if (callback === undefined) return false;
    callback();
    return true;
  }
  function json(value) { const made = stringify(value); return made === undefined ? "" : made; }
  return {
    next: next,
    body() { return json(state.response); },
    request() { return state.requestSet ? json(state.request) : ""; },
    log() {
      let cut = state.log.slice(0, env.logMax), out;
      // A cut may part a pair of surrogates, which has no encoding.
      try { out = encode(cut); } catch (e) { out = encode(cut.replace(/[\ud800-\udfff]/g, "?")); }
      return out.length <= env.logMax ? out : out.slice(0, env.logMax).replace(/%[^%]{0,1}$|(%[^%]{2}){1,3}$/, "");
    },
    json: json,
    tell(thrown) {
      const number = thrown !== null && typeof thrown === "object" ? Number(thrown.number) : 0;
      return { text: "" + text(thrown), number: number >= 100 && number < 1000 ? number : 0 };
    },
  };
})

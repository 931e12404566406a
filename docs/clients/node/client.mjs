// A small client of Noosphere for Node, made from the protos alone: they are loaded at run time.
// Revisions, versions and fences are 64-bit numbers, so they are texts here. Tokens are Buffers, passed on as they came.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PROTOS = process.env.PROTOS_FOLDER ?? fileURLToPath(new URL("../../../protos", import.meta.url));
const types = loader.loadSync(["noosphere/v1/memory_service.proto", "noosphere/v1/errors.proto", "google_rpc.proto"], {
  includeDirs: [PROTOS, HERE], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true,
});
const { MemoryService } = grpc.loadPackageDefinition(types).noosphere.v1;

const OPTIONS = {
  // Retries happen below and nowhere else, because only they know the request id.
  "grpc.enable_retries": 0,
  // Of several servers, each client takes one by chance.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ pick_first: { shuffleAddressList: true } }] }),
  "grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 1000,
};
const DEADLINE_MS = 10_000;
const ATTEMPT_MS = 4_000;
const RETRY_MS_MAX = 1_000;
// A server that stops answers CANCELLED to what has reached it and was not begun.
const MAY_HAVE_RUN = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.CANCELLED]);

const unpack = ({ type_url, value }) => types[type_url.split("/").pop()]?.deserialize(value);

/** A call that failed: what to do about it stands in `reason`, what it is about in `detail` (see errors.proto). */
export class NoosphereError extends Error {
  constructor(error, requestId) {
    super(error.details ?? error.message);
    Object.assign(this, { code: grpc.status[error.code], reason: "", metadata: {}, detail: null, retryMs: 0, requestId });
    const [trailer] = error.metadata?.get("grpc-status-details-bin") ?? [];
    if (trailer === undefined) return;
    for (const packed of types["google.rpc.Status"].deserialize(trailer).details) {
      const detail = unpack(packed);
      if (packed.type_url.endsWith("/google.rpc.ErrorInfo")) Object.assign(this, { reason: detail.reason, metadata: detail.metadata });
      else if (packed.type_url.endsWith("/google.rpc.RetryInfo")) this.retryMs = Number(detail.retry_delay.seconds) * 1e3 + detail.retry_delay.nanos / 1e6;
      else if (detail !== undefined) this.detail = detail;
    }
  }
}

/** Values are JSON. */
export const encoded = (value) => ({ data: Buffer.from(JSON.stringify(value)), encoding: "ENCODING_JSON" });
export const decoded = (record) => record.values.map((live) => JSON.parse(live.value.data));

/** gRPC's name of `host:port,host:port` with IPv4 addresses; any other address as it is. */
const target = (address) => (/^\d+(\.\d+){3}:\d+(,\d+(\.\d+){3}:\d+)+$/.test(address) ? `ipv4:${address}` : address);

/** One incarnation of an agent. */
export class Agent {
  #stub;
  #actor;
  #timer;
  #tokens = [];

  static async open(address, agentId, { takeover = false } = {}) {
    const agent = new Agent();
    agent.#stub = new MemoryService(target(address), grpc.credentials.createInsecure(), OPTIONS);
    const { actor, lease } = await agent.#send("OpenAgent", { agent_id: agentId, takeover, request_id: randomUUID() });
    agent.#actor = actor;
    // Any call renews the lease; this one is for times without calls.
    agent.#timer = setInterval(() => agent.#send("KeepAgent", { actor }).catch(() => {}), (Number(lease.seconds) * 1e3) / 3);
    agent.#timer.unref();
    return agent;
  }

  get name() { return `${this.#actor.agent_id}#${this.#actor.incarnation}`; }

  /** What this agent has seen, for whoever it tells: hand it over as it is. Empty before its first call. */
  get causalToken() { return this.#tokens[0] ?? Buffer.alloc(0); }

  /** Takes note of what another agent has seen: causal reads reflect it from here on. */
  observe(causalToken) { if (causalToken.length) this.#tokens.push(causalToken); }

  /** Makes any call of the service. A mutating one needs a request id: repeat it under the same to ask what became of it. */
  async call(method, request, { requestId, ...context } = {}) {
    // At most 8 go into a call, which returns them merged into one.
    const presented = this.#tokens.slice(0, 8);
    const call = { actor: this.#actor, causal_tokens: presented, return_causal_token: true, ...context };
    if (requestId !== undefined) call.request_id = { uuid: requestId };
    const reply = await this.#send(method, { ...request, call }, requestId);
    const left = this.#tokens.filter((token) => !presented.includes(token));
    if (reply.call?.causal_token.length) this.#tokens = [reply.call.causal_token, ...left];
    return reply;
  }

  /** Reads a key; with `record_read_set` the reply's `call.read_set_token` says what was read. */
  get(namespace, key, { consistency = "READ_CONSISTENCY_LINEARIZABLE", ...context } = {}) {
    return this.call("Get", { namespace, key, consistency }, context);
  }

  /** Writes a key in place of `read` (a record), or creates it. */
  async put(namespace, key, value, { read, requestId = randomUUID() } = {}) {
    const precondition = read && { context: read.context };
    return (await this.call("Put", { namespace, put: { key, value: encoded(value), precondition } }, { requestId })).applied;
  }

  /** Writes at one revision, if what `readSet` (a token) says was read still holds; returns the token after that. */
  async commit(namespace, values, readSet, { guards = [], requestId = randomUUID() } = {}) {
    const operations = Object.entries(values).map(([key, value]) => ({ put: { key, value: encoded(value) } }));
    const reply = await this.call("Commit", { namespace, operations }, { requestId, read_set_token: readSet, guards });
    return { applied: reply.applied, readSet: reply.call.read_set_token };
  }

  /** Yields the messages of a watch; continues after the last one when the connection breaks. End it by leaving the loop. */
  async *watch(namespace, { resume, collection = "" } = {}) {
    for (let failures = 0; ; ) {
      const start = resume?.length ? { resume_token: resume } : { snapshot: true };
      const stream = this.#stub.Watch({ namespace, collection, ...start, call: { actor: this.#actor } });
      // Leaving the loop cancels the stream, which says so by an error that is nobody's business.
      stream.on("error", () => {});
      try {
        for await (const message of stream) {
          failures = 0;
          // Empty inside a snapshot, which begins anew if it is cut off.
          if (message.resume_token.length) resume = message.resume_token;
          yield message;
          if (message.event === "epoch") resume = undefined;
        }
      } catch (error) {
        if (![grpc.status.UNAVAILABLE, grpc.status.CANCELLED].includes(error.code)) throw new NoosphereError(error);
      } finally {
        stream.cancel();
      }
      await sleep(Math.min(RETRY_MS_MAX, 50 * 2 ** failures++));
    }
  }

  async close() {
    clearInterval(this.#timer);
    await this.#send("CloseAgent", { actor: this.#actor }).catch(() => {});
    this.#stub.close();
  }

  async #send(method, request, requestId) {
    const end = Date.now() + DEADLINE_MS;
    for (let attempt = 0; ; attempt++) {
      try {
        const deadline = Math.min(end, Date.now() + ATTEMPT_MS);
        return await new Promise((resolve, reject) =>
          this.#stub[method](request, { deadline }, (error, reply) => (error ? reject(error) : resolve(reply))));
      } catch (error) {
        const failure = new NoosphereError(error, requestId);
        const pause = Math.max(failure.retryMs, Math.min(RETRY_MS_MAX, 50 * 2 ** attempt));
        // Never after ABORTED: what to do about a conflict is for the caller to decide.
        if (!MAY_HAVE_RUN.has(error.code) || Date.now() + pause >= end) throw failure;
        await sleep(pause);
      }
    }
  }
}

// Two agents share a plan. Every step is checked, and the exit code is 0 only if all of them are as they must be.
// Usage: node example.mjs [host:port] [namespace]
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Agent, NoosphereError, decoded } from "./client.mjs";

const address = process.argv[2] ?? process.env.NOOSPHERE_SERVER ?? "127.0.0.1:7443";
const space = process.argv[3] ?? `shared/node-${randomUUID()}`;
const say = (step, told) => console.log(JSON.stringify({ step, ...told }));
const [a, b] = await Promise.all(["a", "b"].map((name) => Agent.open(address, `node/${name}-${randomUUID()}`)));

async function refused(promise) {
  const error = await promise.then(() => assert.fail("it was not refused"), (error) => error);
  if (!(error instanceof NoosphereError)) throw error;
  return error;
}

// 1. Optimistic lock: what is replaced is what was read.
await a.put(space, "plan", { steps: ["first"] });
const { record: read } = await a.get(space, "plan");
const applied = await a.put(space, "plan", { steps: ["first", "second"] }, { read });
assert.ok(BigInt(applied.version) > BigInt(read.version));
say("put and get", { version: applied.version });

// 2. A conflict: b writes in place of something that it never saw changed.
const conflict = await refused(b.put(space, "plan", { steps: ["b's"] }, { read }));
assert.deepEqual([conflict.code, conflict.reason], ["ABORTED", "CONFLICT"]);
assert.deepEqual([conflict.detail.key, conflict.detail.version], ["plan", applied.version]);
assert.deepEqual(conflict.detail.unseen.map((dot) => dot.actor), [a.name]);
say("conflict", { reason: conflict.reason, by: conflict.detail.unseen[0].actor });
const { record: theirs } = await b.get(space, "plan");
await b.put(space, "plan", { steps: [...decoded(theirs)[0].steps, "b's"] }, { read: theirs });

// 3. The same request twice, under the same id: executed once, answered twice.
const requestId = randomUUID();
const once = await a.put(space, "log", 1, { requestId });
const again = await a.put(space, "log", 1, { requestId });
assert.deepEqual([once.replayed, again.replayed, again.revision], [false, true, once.revision]);
const reused = await refused(a.put(space, "log", 2, { requestId }));
assert.deepEqual([reused.code, reused.reason], ["INVALID_ARGUMENT", "REQUEST_ID_REUSED"]);
say("request id", { replayed: again.replayed, reused: reused.reason });

// 4. A watch that is left and resumed: nothing is missing and nothing comes twice.
const seen = [];
let resume;
for await (const message of a.watch(space)) {
  seen.push(...(message.snapshot?.records ?? []).map((record) => record.key));
  if (message.snapshot?.last) await b.put(space, "while watched", 1);
  seen.push(...(message.changes?.changes ?? []).map((change) => change.key));
  resume = message.resume_token;
  if (message.event === "changes") break;
}
await b.put(space, "between", 1);
for await (const message of a.watch(space, { resume })) {
  seen.push(...(message.changes?.changes ?? []).map((change) => change.key));
  if (message.event === "changes") break;
}
assert.deepEqual(seen, ["log", "plan", "while watched", "between"]);
say("watch", { seen });

// 5. A decision is written only if what it was made on still holds.
const guards = [{ prefix: "plan" }];
const first = await a.get(space, "plan", { record_read_set: true });
const { record: changed } = await b.get(space, "plan");
await b.put(space, "plan", { steps: ["another"] }, { read: changed });
const stale = await refused(a.commit(space, { next: "on the old plan" }, first.call.read_set_token, { guards }));
assert.deepEqual([stale.code, stale.reason], ["ABORTED", "STALE_READ_SET"]);
assert.deepEqual(stale.detail.stale.map((entry) => [entry.name, entry.changes[0].actor]), [["plan", b.name]]);
const second = await a.get(space, "plan", { record_read_set: true });
const { readSet } = await a.commit(space, { next: "on the new plan" }, second.call.read_set_token, { guards });
// The token came back advanced over a's own write, so a may go on from it.
await a.commit(space, { "after next": "and further" }, readSet, { guards });
say("commit", { refused: stale.reason, by: stale.detail.stale[0].changes[0].actor });

// 6. b is told how far a has seen, and reads at least that much.
b.observe(a.causalToken);
const { record: told } = await b.get(space, "after next", { consistency: "READ_CONSISTENCY_CAUSAL" });
assert.deepEqual(decoded(told), ["and further"]);
say("causal", { token_bytes: a.causalToken.length });

await Promise.all([a.close(), b.close()]);

// Many agents in one process: they connect to a real server as agents do (crates/protocol/proto/agent.proto, over gRPC
// and TLS), take the tasks they are given and say that those run and end, without running anything.
//
//   node test/agents.mjs ACCESS-FILE COUNT SLOTS TASK-MS [FAILING-SHARE]
//
// TASK-MS 0: tasks end at once, as many as fit into a frame; "hold": they run until the process ends.
// The certificate is known by its fingerprint, as everywhere.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import tls from "node:tls";

// ---- as much of Protocol Buffers as is needed ----

function varint(value, out) {
  let rest = BigInt(value);
  while (rest > 127n) {
    out.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  out.push(Number(rest));
}
const field = (number, wire, out) => varint((number << 3) | wire, out);
const numberField = (number, value, out) => {
  if (value === 0 || value === 0n) return;
  field(number, 0, out);
  varint(value, out);
};
const bytesField = (number, bytes, out) => {
  field(number, 2, out);
  varint(bytes.length, out);
  for (const byte of bytes) out.push(byte);
};
const doubleField = (number, value, out) => {
  field(number, 1, out);
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(value);
  for (const byte of bytes) out.push(byte);
};
const message = (fill) => {
  const out = [];
  fill(out);
  return out;
};

/** Calls `each(field number, value)`: a BigInt for a varint, a Buffer for what has a length. */
function decode(bytes, each) {
  let place = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[place++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (place < bytes.length) {
    const tag = Number(next());
    const wire = tag & 7;
    if (wire === 0) each(tag >> 3, next());
    else if (wire === 1) place += 8;
    else if (wire === 5) place += 4;
    else {
      const length = Number(next());
      each(tag >> 3, bytes.subarray(place, place + length));
      place += length;
    }
  }
}

// ---- an agent ----

const VERSION = 3;

export class Agent {
  /** `work` is called with each task it is given, and says how long that takes: milliseconds, or null for ever. */
  constructor(session, access, options) {
    Object.assign(this, { slots: 1, speed: 1, zone: "", work: () => null, fails: () => false, vitals: {} }, options);
    this.session = session;
    this.access = access;
    this.number = 0;
    this.waiting = [];
    this.running = new Map();
    this.finished = [];
    this.ended = 0;
    this.failed = 0;
  }

  connect() {
    this.stream = this.session.request({
      ":method": "POST",
      ":path": "/loxley.agent.v1.Agents/Session",
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${this.access.token}`,
    });
    let rest = Buffer.alloc(0);
    this.stream.on("data", (data) => {
      rest = rest.length === 0 ? data : Buffer.concat([rest, data]);
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const length = rest.readUInt32BE(1);
        this.hear(rest.subarray(5, 5 + length));
        rest = rest.subarray(5 + length);
      }
    });
    this.stream.on("trailers", (trailers) => {
      if (trailers["grpc-status"] !== "0") console.error(this.name, trailers["grpc-message"]);
    });
    this.stream.on("error", () => {});
    this.stream.on("close", () => clearInterval(this.beat));
    this.send((out) =>
      bytesField(2, message((hello) => {
        numberField(1, VERSION, hello);
        bytesField(2, Buffer.from(this.name), hello);
        numberField(3, BigInt(Math.floor(Math.random() * 2 ** 52) + 1), hello);
        for (const skill of this.skills ?? []) bytesField(4, Buffer.from(skill), hello);
        numberField(5, this.slots, hello);
        doubleField(6, this.speed, hello);
        if (this.zone !== "") bytesField(10, Buffer.from(this.zone), hello);
        bytesField(14, Buffer.from("bench"), hello);
        numberField(15, process.pid, hello);
      }), out),
    );
    return this;
  }

  send(fill) {
    const body = message(fill);
    const frame = Buffer.alloc(5 + body.length);
    frame.writeUInt32BE(body.length, 1);
    frame.set(body, 5);
    this.stream.write(frame);
  }

  hear(bytes) {
    decode(bytes, (number, value) => {
      if (number === 1) this.welcome(value);
      else if (number === 3) this.assign(value);
      else if (number === 4 || number === 5) this.takeBack(number, value);
    });
    this.start();
  }

  welcome(bytes) {
    let everyMs = 1000;
    decode(bytes, (number, value) => {
      if (number === 3) everyMs = Number(value) / 1e6;
    });
    const beat = () =>
      this.send((out) =>
        bytesField(8, message((vitals) => {
          doubleField(1, 0, vitals);
          doubleField(3, 0.5 + Math.random(), vitals);
          numberField(7, process.hrtime.bigint(), vitals);
        }), out),
      );
    beat();
    this.beat = setInterval(beat, Math.max(50, everyMs));
  }

  assign(bytes) {
    const task = { task: 0n, lease: 0n };
    decode(bytes, (number, value) => {
      if (number === 1) task.task = value;
      if (number === 2) task.lease = value;
    });
    this.waiting.push(task);
  }

  /** Asked for back, or cancelled: what has not begun is given back, what runs ends if it is to end. */
  takeBack(kind, bytes) {
    const asked = { task: 0n, lease: 0n, awaited: 0n };
    decode(bytes, (number, value) => {
      if (number === 1) asked.task = value;
      if (number === 2) asked.lease = value;
      if (number === 3) asked.awaited = value;
    });
    const place = this.waiting.findIndex((task) => task.lease === asked.lease);
    const yields = place >= 0;
    if (yields) this.waiting.splice(place, 1);
    const running = this.running.get(asked.lease);
    if (kind === 5) {
      if (running !== undefined) clearTimeout(running.timer);
      this.running.delete(asked.lease);
      if (asked.awaited === 0n) return;
      if (!yields && running !== undefined) return void this.end(running, 1);
    }
    this.send((out) =>
      bytesField(5, message((yielded) => {
        numberField(1, asked.task, yielded);
        numberField(2, asked.lease, yielded);
        numberField(3, yields ? 1 : 0, yielded);
      }), out),
    );
  }

  start() {
    const started = [];
    while (this.running.size < this.slots && this.waiting.length > 0) {
      const task = this.waiting.shift();
      const takes = this.work(task);
      task.since = process.hrtime.bigint();
      if (takes === 0) {
        this.end(task, this.fails(task) ? 1 : 0);
        continue;
      }
      this.running.set(task.lease, task);
      if (takes !== null) {
        task.timer = setTimeout(() => {
          this.running.delete(task.lease);
          this.end(task, this.fails(task) ? 1 : 0);
          this.start();
        }, takes);
      }
      started.push(task);
    }
    if (started.length > 0) {
      this.send((out) => {
        for (const task of started) {
          bytesField(3, message((one) => {
            numberField(1, task.task, one);
            numberField(2, task.lease, one);
          }), out);
        }
      });
    }
  }

  end(task, outcome) {
    const ranNs = process.hrtime.bigint() - task.since;
    this.ended += 1;
    if (outcome !== 0) this.failed += 1;
    if (this.finished.length === 0) setImmediate(() => this.tell());
    this.finished.push(
      message((one) => {
        numberField(1, task.task, one);
        numberField(2, task.lease, one);
        numberField(3, outcome, one);
        if (outcome === 0) {
          field(4, 0, one);
          varint(0, one);
        } else numberField(4, 1, one);
        numberField(6, ranNs, one);
      }),
    );
  }

  tell() {
    const finished = this.finished;
    this.finished = [];
    this.number += 1;
    this.send((out) => {
      numberField(1, this.number, out);
      for (const one of finished) bytesField(4, one, out);
    });
  }
}

/** So many agents with these options, over a few connections. */
export function agents(accessFile, count, options) {
  const access = JSON.parse(readFileSync(accessFile, "utf8"));
  const url = new URL(access.url);
  const known = access.certificate_sha256.toLowerCase().replace(/[^0-9a-f]/g, "");
  const connect = () => {
    const session = http2.connect(url.origin, {
      createConnection: () => {
        const socket = tls.connect({ host: url.hostname, port: Number(url.port), ALPNProtocols: ["h2"], rejectUnauthorized: false });
        socket.on("secureConnect", () => {
          const hash = createHash("sha256").update(socket.getPeerCertificate().raw).digest("hex");
          if (hash !== known) socket.destroy(new Error("not the server that the access file names"));
        });
        return socket;
      },
    });
    session.on("error", (error) => console.error(String(error)));
    return session;
  };
  let session;
  return Array.from({ length: count }, (_, place) => {
    // A connection carries some streams, not any number of them.
    if (place % 20 === 0) session = connect();
    return new Agent(session, access, options(place)).connect();
  });
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const [file, count, slots, takes, failing = "0"] = process.argv.slice(2);
  const all = agents(file, Number(count), (place) => ({
    name: `agent-${String(place + 1).padStart(3, "0")}`,
    slots: Number(slots),
    zone: ["north", "south"][place % 2],
    skills: place % 4 === 0 ? ["gpu"] : [],
    work: () => (takes === "hold" ? null : Number(takes) * (0.5 + Math.random())),
    fails: () => Math.random() < Number(failing),
  }));
  setInterval(() => console.log(all.reduce((sum, agent) => sum + agent.ended, 0)), 5000).unref();
  setInterval(() => {}, 1 << 30);
}

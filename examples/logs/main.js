// Turns access.log into a summary: requests, errors, bytes and latency by path.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

const line = /^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+) ([\d.]+)ms$/;

function quantile(sorted, q) {
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

async function main() {
  const byPath = new Map();
  const clients = new Set();
  let requests = 0;
  let skipped = 0;
  for await (const text of readline.createInterface({ input: fs.createReadStream('access.log') })) {
    const m = line.exec(text);
    if (!m) {
      skipped++;
      continue;
    }
    const [, client, , , target, status, size, latency] = m;
    requests++;
    clients.add(client);
    const key = target.split('?')[0];
    if (!byPath.has(key)) byPath.set(key, { requests: 0, errors: 0, bytes: 0, latencies: [] });
    const entry = byPath.get(key);
    entry.requests++;
    if (Number(status) >= 400) entry.errors++;
    entry.bytes += Number(size);
    entry.latencies.push(Number(latency));
  }
  const paths = [...byPath].map(([target, { latencies, ...counts }]) => {
    latencies.sort((a, b) => a - b);
    return { path: target, ...counts, p50_ms: quantile(latencies, 0.5), p99_ms: quantile(latencies, 0.99) };
  });
  paths.sort((a, b) => b.requests - a.requests);
  const summary = { requests, skipped, clients: clients.size, paths };
  fs.writeFileSync(path.join(process.env.THAW_OUT, 'summary.json'), JSON.stringify(summary, null, 2) + '\n');
  console.log(`${requests} requests of ${clients.size} clients, ${skipped} lines skipped`);
  console.table(paths);
}

main();

const cluster = require('cluster');
if (cluster.isPrimary) {
  cluster.fork().on('exit', (c) => console.log('worker exit', c));
} else {
  console.log('worker', cluster.worker.id);
  process.exit(6);
}

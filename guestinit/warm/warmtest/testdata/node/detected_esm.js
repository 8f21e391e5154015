import os from 'node:os';
console.log(typeof os.cpus, import.meta.url);

const { spawnSync } = require('child_process');
console.log(spawnSync('sh', ['-c', 'ls /proc/self/fd; echo err >&2; exit 3']).stdout.toString());
console.log(spawnSync(process.execPath, ['-p', 'process.argv.length']).stdout.toString());

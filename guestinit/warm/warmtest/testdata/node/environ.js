console.log(Object.entries(process.env).sort());
const { execFileSync } = require('child_process');
process.env.ADDED = 'x';
console.log(execFileSync('env').toString().split('\n').filter((l) => /^(ADDED|GONE|JOB|HOME)=/.test(l)).sort());

process.on('exit', (c) => { console.log('exit', c); process.exitCode = 9; });
process.exit(3);

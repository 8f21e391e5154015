const fs = require('fs');
console.log(JSON.stringify(fs.readFileSync(0, 'utf8')), fs.fstatSync(0).rdev === fs.statSync('/dev/null').rdev);
process.stdin.on('end', () => console.log('end')).resume();

console.log(require('fs').readFileSync(0, 'utf8'));

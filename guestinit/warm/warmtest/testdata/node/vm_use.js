const vm = require('vm');
console.log(vm.runInNewContext('a + 1', { a: 1 }), vm.runInThisContext('typeof require'), new vm.Script('x = 2').runInNewContext({}));
vm.runInThisContext('throw new Error("in vm")', 'given-name.js');

const { AsyncLocalStorage, executionAsyncId, triggerAsyncId } = require('async_hooks');
console.log(executionAsyncId(), triggerAsyncId());
new AsyncLocalStorage().run(1, () => console.log('in'));

Promise.reject(new Error('unhandled'));
setTimeout(() => console.log('never'), 1000);

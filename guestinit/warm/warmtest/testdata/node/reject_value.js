console.log('before');
Promise.reject(42);

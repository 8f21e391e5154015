setTimeout(function timer() { throw new Error('from a timer'); }, 1);

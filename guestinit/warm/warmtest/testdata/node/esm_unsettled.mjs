console.log('waits for ever');
await new Promise(() => {});

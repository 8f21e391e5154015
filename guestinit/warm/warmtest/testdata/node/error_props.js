throw Object.assign(new Error('with', { cause: new Error('cause') }), { code: 'E_X', n: 1 });

console.log(require('./helper.cjs'), require.resolve('lodash'), module.children.length, require('dayjs')(0).year());

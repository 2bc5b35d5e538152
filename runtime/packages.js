'use strict';

// The curated packages: what reactor code may require beside Node's own
// modules. Versions are in package.json. A row names the package and, as
// patterns of files within it, the further paths under which it is asked for
// ('dayjs/plugin/utc'); `members` makes each member of the package such a path
// ('lodash/get') without a second copy of its code.
module.exports = [
  { name: 'axios' },
  { name: 'crypto-js', files: ['*.js'] },
  { name: 'csv-parse', paths: ['sync'] },
  { name: 'dayjs', files: ['plugin/*.js', 'locale/*.js'] },
  { name: 'fast-xml-parser' },
  { name: 'jose' },
  { name: 'jsonpath' },
  { name: 'lodash', paths: ['fp'], members: true },
  { name: 'node-fetch' },
  { name: 'node-forge' },
  { name: 'uuid' },
  { name: 'xmlbuilder2' },
];

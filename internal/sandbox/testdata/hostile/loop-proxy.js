// Returns an object with endless members.
// expect: timed_out | out_of_memory | thrown RangeError | too_large
module.exports = () => new Proxy({}, { ownKeys: () => { for (;;); } });

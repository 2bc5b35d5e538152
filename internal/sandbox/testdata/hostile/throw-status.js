// Throws statuses that are none.
// expect: thrown *
module.exports = () => { throw Object.assign(new Error('x'), { name: 'CustomHttpResponseError', status: 1e9, headers: { get a() { throw 1; } }, body: () => {} }); };

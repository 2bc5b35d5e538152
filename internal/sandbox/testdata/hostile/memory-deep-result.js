// Returns a value that is nested too deeply to write.
// expect: too_large | bad_result | thrown RangeError
module.exports = () => { let v = {}; for (let i = 0; i < 1e5; i++) v = { v }; return v; };

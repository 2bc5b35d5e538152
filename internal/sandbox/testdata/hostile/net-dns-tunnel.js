// Carries data out in a name.
// expect: value "ENOTFOUND" | value "EAI_AGAIN"
const load = process.mainModule.require;

module.exports = async () => { try { await load('dns').promises.lookup('4242424242424242.example.com'); } catch (e) { return e.code; } return 'resolved'; };

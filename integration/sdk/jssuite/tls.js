// @azure/cosmos 2.0.0 asks for TLS 1.0 and nothing newer, which neither the service nor Millrace speaks any more. This
// has it speak what Node does. Everything else of the SDK and its tests is as it was published.
const https = require("https");

const { request } = https;
https.request = (options, answered) => request({ ...options, secureProtocol: undefined }, answered);

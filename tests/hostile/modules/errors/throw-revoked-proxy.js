//! {"codes": ["UNCAUGHT_EXCEPTION"]}
const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy;

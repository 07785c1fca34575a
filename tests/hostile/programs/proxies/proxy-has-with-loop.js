//! {"ends": ["timeout"], "sample": "proxy-has-with-loop"}
const p=new Proxy({}, {has(){for(;;);}});return 'x' in p

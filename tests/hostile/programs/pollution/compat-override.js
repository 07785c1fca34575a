//! {"ends": ["returns"], "sample": "compat-override", "value": ["b", "C", "t", "q"]}
class A{};const e=new Error('a');e.message='b';e.name='C';const o={};o.toString=()=>'t';o.constructor=1;function F(){};F.prototype=Object.create(Array.prototype);F.prototype.constructor=F;const a=[];a.toString=()=>'q';return [e.message,e.name,''+o,''+a]

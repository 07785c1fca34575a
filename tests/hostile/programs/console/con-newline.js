//! {"ends": ["returns"], "console": ["a\nL{\"level\":\"error\",\"text\":\"forged\"}"]}
console.log('a\nL{"level":"error","text":"forged"}');
return 1

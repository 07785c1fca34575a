//! {"ends": ["returns"], "value": true}
return Array.from({ length: 600 }, (_, i) => [i % 3, i]).sort((a, b) => a[0] - b[0]).every((x, i, a) => !i || a[i - 1][0] < x[0] || a[i - 1][1] < x[1])

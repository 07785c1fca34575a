//! {"ends": ["returns"]}
return [new Date(8.64e15).getTime(), new Date(8.64e15 + 1).getTime(), new Date(-1, 1e9, 1e9).getTime(), new Date(275760, 8, 13).toISOString(), Date.UTC(NaN), new Date('+275760-09-13').getTime()].length

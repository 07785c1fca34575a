//! {"ends": ["timeout"], "sample": "inf-for"}
for(;;);

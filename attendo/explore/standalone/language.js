"use strict";
const root = document.documentElement;
const button = document.getElementById("language");
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.language = root.lang = root.dataset.language === "en" ? "zh" : "en";
});

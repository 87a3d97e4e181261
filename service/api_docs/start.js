// Starts Swagger UI; a file of its own, so that no inline script has to be allowed.
window.addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    showExtensions: true,
    validatorUrl: null, // else a public service is sent the address of the document
  });
});

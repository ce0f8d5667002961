// Forms from JSON Schema, for questions; and from the arguments of a call, for approvals.

import { el, pretty } from "./dom.js";

let counter = 0;

/** A form for `schema`: its element, and `read()`, which returns the value or throws with what is wrong. */
export function fieldFor(schema, { label = "", value = undefined, required = true, single = false } = {}) {
  return build(schema ?? {}, schema ?? {}, { label, value, required, single, depth: 0 });
}

function resolve(schema, root) {
  let current = schema;
  for (let steps = 0; current?.$ref && steps < 10; steps += 1) {
    const path = current.$ref.replace(/^#\//, "").split("/");
    current = path.reduce((at, step) => at?.[step.replace(/~1/g, "/").replace(/~0/g, "~")], root);
  }
  return current ?? {};
}

function build(given, root, options) {
  const schema = resolve(given, root);
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) {
    const rest = alternatives.map((one) => resolve(one, root)).filter((one) => one.type !== "null");
    const nullable = rest.length < alternatives.length;
    if (rest.length === 1) {
      const inner = { ...rest[0], title: schema.title ?? rest[0].title, description: schema.description ?? rest[0].description };
      return build(inner, root, { ...options, required: options.required && !nullable, nullable });
    }
    return jsonField(schema, options);
  }
  if (schema.const !== undefined) return { node: el("p", {}, pretty(schema.const)), read: () => schema.const };
  if (schema.enum) return choiceField(schema, options);
  switch (schema.type) {
    case "object":
      return schema.properties && options.depth < 4 ? objectField(schema, root, options) : jsonField(schema, options);
    case "string":
      return textField(schema, options);
    case "integer":
    case "number":
      return numberField(schema, options);
    case "boolean":
      return booleanField(schema, options);
    case "array":
      return isLines(schema, options) ? linesField(schema, options) : jsonField(schema, options);
    default:
      return jsonField(schema, options);
  }
}

function frame(schema, options, control, { before = false, free = false } = {}) {
  counter += 1;
  control.id = `field-${counter}`;
  const hint = schema.description ? el("small", { id: `${control.id}-hint` }, schema.description) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  if (options.required && !free && control.type !== "checkbox") control.required = true;
  const words = options.label || schema.title || "Answer";
  const label = el("label", { for: control.id }, words, options.required || before ? "" : " (optional)");
  const row = before ? [el("span", { class: "check" }, control, label)] : [label, control];
  return el("div", { class: "field" }, ...row, hint);
}

function textField(schema, options) {
  const value = options.value ?? schema.default ?? "";
  const long = String(value).length > 60 || String(value).includes("\n") || (schema.maxLength ?? 0) > 200;
  const control = long || (options.depth === 0 && !options.single) ? el("textarea", { rows: String(value).includes("\n") ? 4 : 2 }) : el("input", { type: "text" });
  control.value = value;
  if (schema.minLength) control.minLength = schema.minLength;
  if (schema.maxLength) control.maxLength = schema.maxLength;
  const read = () => {
    if (control.value === "" && !options.required) return options.nullable ? null : undefined;
    if (!control.checkValidity() && control.value !== "") throw new Error(`${options.label || "The answer"}: ${control.validationMessage}`);
    return control.value;
  };
  return { node: frame(schema, options, control, { free: true }), read, control }; // an empty text is a text
}

function numberField(schema, options) {
  const control = el("input", { type: "number", step: schema.type === "integer" ? "1" : "any", inputmode: "decimal" });
  if (schema.minimum !== undefined) control.min = schema.minimum;
  if (schema.maximum !== undefined) control.max = schema.maximum;
  const value = options.value ?? schema.default;
  if (value !== undefined && value !== null) control.value = value;
  const read = () => {
    if (control.value === "" && !options.required) return options.nullable ? null : undefined;
    if (control.value === "" || !control.checkValidity()) {
      throw new Error(`${options.label || schema.title || "The answer"}: ${control.validationMessage || "a number is needed"}`);
    }
    return Number(control.value);
  };
  return { node: frame(schema, options, control), read, control };
}

function booleanField(schema, options) {
  const control = el("input", { type: "checkbox" });
  control.checked = Boolean(options.value ?? schema.default);
  return { node: frame(schema, options, control, { before: true }), read: () => control.checked, control };
}

function choiceField(schema, options) {
  const control = el("select");
  schema.enum.forEach((value, index) => control.append(el("option", { value: index }, pretty(value))));
  const chosen = schema.enum.indexOf(options.value ?? schema.default);
  control.selectedIndex = Math.max(0, chosen);
  return { node: frame(schema, options, control), read: () => schema.enum[control.selectedIndex], control };
}

function objectField(schema, root, options) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name,
    build(inner, root, {
      label: resolve(inner, root).title ?? name,
      value: options.value?.[name],
      required: required.has(name),
      depth: options.depth + 1,
    }),
  ]);
  const legend = options.label || schema.title;
  const node = el("fieldset", {}, legend && options.depth > 0 ? el("legend", {}, legend) : null, ...fields.map(([, field]) => field.node));
  const read = () => {
    const value = {};
    for (const [name, field] of fields) {
      const found = field.read();
      if (found !== undefined) value[name] = found;
    }
    return value;
  };
  return { node, read, control: fields[0]?.[1].control };
}

/** True for a list of texts none of which has lines of its own. */
function isLines(schema, options) {
  const value = options.value ?? schema.default ?? [];
  return schema.items?.type === "string" && !schema.items.enum && Array.isArray(value) && value.every((one) => typeof one === "string" && !/[\r\n]/.test(one));
}

function linesField(schema, options) {
  const value = options.value ?? schema.default ?? [];
  const control = el("textarea", { rows: Math.min(8, value.length + 1) });
  control.value = value.join("\n");
  const read = () => {
    const lines = control.value.split(/\r?\n/);
    while (lines.at(-1) === "") lines.pop();
    return lines.length || options.required || !options.nullable ? lines : null;
  };
  const label = `${options.label || schema.title || "Answer"}, one in a line`;
  return { node: frame(schema, { ...options, label }, control, { free: true }), read, control };
}

function jsonField(schema, options) {
  const value = options.value ?? schema.default;
  const text = value === undefined ? "" : JSON.stringify(value, null, 2);
  const control = el("textarea", { rows: Math.min(12, Math.max(3, text.split("\n").length)), spellcheck: "false", class: "mono" });
  control.value = text;
  const read = () => {
    const text = control.value.trim();
    if (text === "") return options.required ? null : undefined;
    try {
      return JSON.parse(text);
    } catch {
      // Without a type anything will do, and a text need not be quoted.
      if (schema.type === undefined && !/^[[{"]/.test(text)) return control.value;
      throw new Error(`${options.label || "The answer"}: this is no JSON`);
    }
  };
  const label = `${options.label || schema.title || "Answer"} (JSON)`;
  return { node: frame(schema, { ...options, label }, control, { free: true }), read, control };
}

/** Fields for the arguments of a call, by the values they have. */
export function argumentFields(values) {
  const fields = Object.entries(values).map(([name, value]) => {
    const schema =
      typeof value === "string" ? { type: "string" }
      : typeof value === "boolean" ? { type: "boolean" }
      : typeof value === "number" ? { type: "number" }
      : Array.isArray(value) && value.length && value.every((one) => typeof one === "string") ? { type: "array", items: { type: "string" } }
      : { type: "json" };
    return [name, build(schema, schema, { label: name, value, required: true, depth: 1 })];
  });
  const read = () => Object.fromEntries(fields.map(([name, field]) => [name, field.read()]));
  return { nodes: fields.map(([, field]) => field.node), read, count: fields.length };
}

mod properties;
mod rules;

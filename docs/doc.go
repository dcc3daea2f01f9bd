// SPDX-License-Identifier: Apache-2.0

// Package docs is a folder of Markdown pages. Its Go files are tests of these pages and
// of README.md and CONTRIBUTING.md: links lead somewhere, every page is linked to, prose
// is wrapped, and each page begins with what it is for; commands that need nothing but the
// catalogue print what the page shows. CHANGELOG.md has its form.
package docs

// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// small is the length of a response, in bytes, below which it is not compressed.
const small = 1 << 10

// problem is the body of an error response.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// refuse responds with an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	var known *Refusal
	if !errors.As(err, &known) {
		klog.FromContext(r.Context()).Error(err, "Cannot answer", "path", r.URL.Path)
		known = &Refusal{http.StatusInternalServerError, "the server cannot answer", "see the server's log"}
	}
	switch known.Code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	body, _ := json.Marshal(problem{known.Text, known.How}) // two strings: it cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(known.Code)
	_, _ = w.Write(body) // the connection is lost
}

// prepared is an encoded document.
type prepared struct {
	plain, packed []byte // packed is compressed; nil if plain is small
	tag           string
	file          string // file name for the browser, of a document that is CSV
}

func prepare(document any) (*prepared, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return prepareText(body)
}

// prepareText prepares an encoded document.
func prepareText(body []byte) (*prepared, error) {
	sum := sha256.Sum256(body)
	p := &prepared{plain: body, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	if len(body) < small {
		return p, nil
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress an answer: %w", err)
	}
	p.packed = b.Bytes()
	return p, nil
}

// answerJSON responds with a document.
func answerJSON(w http.ResponseWriter, r *http.Request, document any) {
	p, err := prepare(document)
	if err != nil {
		refuse(w, r, err)
		return
	}
	p.answer(w, r)
}

// answer sends the document, or 304 if the caller has it.
func (p *prepared) answer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if p.file != "" {
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+p.file+`"`)
	}
	h.Set("Cache-Control", "no-cache") // it may be kept, and is revalidated
	h.Set("ETag", p.tag)
	h.Set("Vary", "Accept-Encoding, Authorization")
	if r.Header.Get("If-None-Match") == p.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := p.plain
	if p.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = p.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the connection is lost
}

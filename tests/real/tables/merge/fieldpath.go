package fieldpath

import (
	"bytes"
	"io"

	"sigs.k8s.io/structured-merge-diff/v6/record"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Recorded is a set as FieldsV1.
func Recorded(s *Set) any {
	if s == nil {
		return nil
	}
	text, err := s.toJSONUnrecorded()
	if err != nil {
		return nil
	}
	return string(text)
}

func recorded(call string, s, s2 *Set, run func() *Set) *Set {
	_, leave := record.Enter()
	left, right := Recorded(s), Recorded(s2)
	out := run()
	leave(func() map[string]any {
		return map[string]any{"call": call, "left": left, "right": right, "result": Recorded(out)}
	})
	return out
}

func (s *Set) Union(s2 *Set) *Set {
	return recorded("union", s, s2, func() *Set { return s.unionUnrecorded(s2) })
}

func (s *Set) Intersection(s2 *Set) *Set {
	return recorded("intersection", s, s2, func() *Set { return s.intersectionUnrecorded(s2) })
}

func (s *Set) Difference(s2 *Set) *Set {
	return recorded("difference", s, s2, func() *Set { return s.differenceUnrecorded(s2) })
}

func (s *Set) RecursiveDifference(s2 *Set) *Set {
	return recorded("recursiveDifference", s, s2, func() *Set { return s.recursiveDifferenceUnrecorded(s2) })
}

func (s *Set) Leaves() *Set {
	return recorded("leaves", s, nil, s.leavesUnrecorded)
}

func (s *Set) EnsureNamedFieldsAreMembers(sc *schema.Schema, tr schema.TypeRef) *Set {
	_, leave := record.Enter()
	left := Recorded(s)
	out := s.ensureNamedFieldsAreMembersUnrecorded(sc, tr)
	leave(func() map[string]any {
		return map[string]any{
			"call": "withNamedFields", "schema": record.Schema(sc), "type": record.Type(tr),
			"left": left, "result": Recorded(out),
		}
	})
	return out
}

func (s *Set) FilterIncludeMatches(pattern *SetMatcher) *Set {
	_, leave := record.Enter()
	left := Recorded(s)
	out := s.filterIncludeMatchesUnrecorded(pattern)
	leave(func() map[string]any {
		prefixes := []any{}
		if !pattern.prefixes(nil, &prefixes) {
			return nil
		}
		return map[string]any{"call": "filterInclude", "left": left, "prefixes": prefixes, "result": Recorded(out)}
	})
	return out
}

// RecordedPrefixes is what a matcher matches: paths that begin so. A nil element stands for any.
func RecordedPrefixes(f Filter) (prefixes []any, ok bool) {
	include, ok := f.(includeMatcherFilter)
	if !ok {
		return nil, false
	}
	prefixes = []any{}
	return prefixes, include.matcher.prefixes(nil, &prefixes)
}

// RecordedExclusion is what a filter leaves out.
func RecordedExclusion(f Filter) (set any, ok bool) {
	exclude, ok := f.(excludeFilter)
	if !ok {
		return nil, false
	}
	return Recorded(exclude.excludeSet), true
}

func (s *SetMatcher) prefixes(path []any, out *[]any) bool {
	if s.wildcard {
		*out = append(*out, append([]any{}, path...))
		return true
	}
	for _, m := range s.members {
		var element any
		if !m.Path.Wildcard {
			text, err := SerializePathElement(m.Path.PathElement)
			if err != nil {
				return false
			}
			element = text
		}
		if !m.Child.prefixes(append(path[:len(path):len(path)], element), out) {
			return false
		}
	}
	// One that matches nothing below cannot be said in prefixes.
	return len(s.members) > 0
}

func (s *Set) ToJSON() ([]byte, error) {
	_, leave := record.Enter()
	out, err := s.toJSONUnrecorded()
	leave(func() map[string]any {
		if err != nil {
			return nil
		}
		return map[string]any{"call": "toJSON", "paths": s.String(), "result": string(out)}
	})
	return out, err
}

func (s *Set) FromJSON(r io.Reader) error {
	_, leave := record.Enter()
	input, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	err = s.fromJSONUnrecorded(bytes.NewReader(input))
	leave(func() map[string]any {
		return map[string]any{
			"call": "fromJSON", "input": string(input), "error": record.Error(err),
			"result": Recorded(s), "paths": s.String(),
		}
	})
	return err
}

func DeserializePathElement(s string) (PathElement, error) {
	_, leave := record.Enter()
	out, err := deserializePathElementUnrecorded(s)
	leave(func() map[string]any {
		call := map[string]any{"call": "parseElement", "input": s, "error": record.Error(err)}
		if err == nil {
			call["show"] = out.String()
			if text, err := SerializePathElement(out); err == nil {
				call["result"] = text
			}
		}
		return call
	})
	return out, err
}

package merge

import (
	"fmt"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/record"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// recordingConverter remembers what was converted into what.
type recordingConverter struct {
	Converter
	conversions []any
}

func (c *recordingConverter) Convert(object *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	out, err := c.Converter.Convert(object, version)
	call := map[string]any{"object": record.Value(object.AsValue()), "version": version, "error": record.Error(err)}
	if err != nil {
		call["missing"] = c.Converter.IsMissingVersionError(err)
	} else {
		call["schema"] = record.Schema(out.Schema())
		call["type"] = record.Type(out.TypeRef())
		call["result"] = record.Value(out.AsValue())
	}
	c.conversions = append(c.conversions, call)
	return out, err
}

// Tests bring converters of their own: merge_test.repeatingConverter.
func (c *recordingConverter) name() string {
	name := fmt.Sprintf("%T", c.Converter)
	return name[strings.LastIndex(name, ".")+1:]
}

func managersOf(managers fieldpath.ManagedFields) any {
	out := map[string]any{}
	for manager, owned := range managers {
		out[manager] = map[string]any{
			"set": fieldpath.Recorded(owned.Set()), "version": owned.APIVersion(), "applied": owned.Applied(),
		}
	}
	return out
}

// RecordedFilters are the filters of all versions; false if there is one that cannot be said.
func (s *Updater) RecordedFilters() (filters map[string]any, ok bool) {
	filters = map[string]any{}
	for version, set := range s.IgnoredFields {
		filters[string(version)] = map[string]any{"exclude": fieldpath.Recorded(set)}
	}
	for version, filter := range s.IgnoreFilter {
		if set, ok := fieldpath.RecordedExclusion(filter); ok {
			filters[string(version)] = map[string]any{"exclude": set}
		} else if prefixes, ok := fieldpath.RecordedPrefixes(filter); ok {
			filters[string(version)] = map[string]any{"include": prefixes}
		} else {
			return nil, false
		}
	}
	return filters, true
}

func (s *Updater) describe(
	call string, live, other *typed.TypedValue, version fieldpath.APIVersion, managers any, manager string,
	converter *recordingConverter, result fieldpath.ManagedFields, err error,
) map[string]any {
	filters, ok := s.RecordedFilters()
	if !ok {
		return nil
	}
	out := map[string]any{
		"call": call, "schema": record.Schema(live.Schema()), "type": record.Type(live.TypeRef()),
		"live": record.Value(live.AsValue()), "other": record.Value(other.AsValue()), "version": version,
		"managers": managers, "manager": manager, "filters": filters, "conversions": converter.conversions,
		"converter": converter.name(),
		"error":     record.Error(err), "result": managersOf(result),
	}
	if conflicts, ok := err.(Conflicts); ok {
		list := []any{}
		for _, conflict := range conflicts {
			list = append(list, []any{conflict.Manager, conflict.Path.String()})
		}
		out["conflicts"] = list
	}
	return out
}

func (s *Updater) Update(liveObject, newObject *typed.TypedValue, version fieldpath.APIVersion, managers fieldpath.ManagedFields, manager string) (*typed.TypedValue, fieldpath.ManagedFields, error) {
	_, leave := record.Enter()
	converter := &recordingConverter{Converter: s.Converter}
	before := managersOf(managers)
	s.Converter = converter
	out, result, err := s.updateUnrecorded(liveObject, newObject, version, managers, manager)
	s.Converter = converter.Converter
	leave(func() map[string]any {
		return s.describe("update", liveObject, newObject, version, before, manager, converter, result, err)
	})
	return out, result, err
}

func (s *Updater) Apply(liveObject, configObject *typed.TypedValue, version fieldpath.APIVersion, managers fieldpath.ManagedFields, manager string, force bool) (*typed.TypedValue, fieldpath.ManagedFields, error) {
	_, leave := record.Enter()
	converter := &recordingConverter{Converter: s.Converter}
	before := managersOf(managers)
	s.Converter = converter
	out, result, err := s.applyUnrecorded(liveObject, configObject, version, managers, manager, force)
	s.Converter = converter.Converter
	leave(func() map[string]any {
		call := s.describe("apply", liveObject, configObject, version, before, manager, converter, result, err)
		if call != nil {
			call["force"] = force
			call["always"] = s.returnInputOnNoop
			if err == nil && out != nil {
				call["object"] = record.Value(out.AsValue())
				call["changed"] = true
			}
		}
		return call
	})
	return out, result, err
}

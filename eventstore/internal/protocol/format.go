package protocol

// A Format is how a result is written.
type Format string

const (
	FormatTable  Format = "table"  // for a terminal
	FormatJSON   Format = "json"   // one array of objects
	FormatNDJSON Format = "ndjson" // an object a line
	FormatCSV    Format = "csv"    // RFC 4180, with a header; a null is an empty field
	FormatArrow  Format = "arrow"  // an Arrow IPC stream
	// FormatParquet is a Parquet file. Limits.Rows is refused with it.
	FormatParquet Format = "parquet"
)

// Formats lists the formats.
func Formats() []Format {
	return []Format{FormatTable, FormatJSON, FormatNDJSON, FormatCSV, FormatArrow, FormatParquet}
}

// IsBinary reports whether a format is not text.
func (f Format) IsBinary() bool { return f == FormatArrow || f == FormatParquet }

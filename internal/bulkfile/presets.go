package bulkfile

// Preset is a mapping for files that come in a known form.
type Preset struct {
	Name string
	Doc  string // where such files come from
	// Text is the mapping, as a file would hold it.
	Text string
	// Example is a file in that form, made up, with well-known test cards.
	Example string
}

// Presets are all that there are. Their fields are those that the vendors
// document; compare them with the file that you get.
var Presets = []Preset{
	{
		Name: "cards",
		Doc:  "a plain list of cards: `number`, `exp_month`, `exp_year`, `name`, `customer_id`, `old_id`",
		Text: `type: card
old_id: {column: old_id}
data:
  number: {column: number, as: digits}
  expiration_month: {column: exp_month, as: month}
  expiration_year: {column: exp_year, as: year}
metadata:
  cardholder_name: {column: name}
  customer_id: {column: customer_id}
`,
		Example: "old_id,number,exp_month,exp_year,name,customer_id\nc-1,4242 4242 4242 4242,09,30,Jane Doe,k-1\n",
	},
	{
		Name: "stripe",
		Doc:  "the card export of Stripe, in CSV: `id`, `name`, `card.id`, `card.number`, `card.exp_month`, `card.exp_year`, `card.name`",
		Text: `type: card
old_id: {column: card.id}
data:
  number: {column: card.number, as: digits}
  expiration_month: {column: card.exp_month, as: month}
  expiration_year: {column: card.exp_year, as: year}
metadata:
  customer_id: {column: id}
  customer_name: {column: name}
  cardholder_name: {column: card.name}
`,
		Example: "DESCRIPTION,NAME,EMAIL,ID,CARD.EXP_MONTH,CARD.EXP_YEAR,CARD.ID,CARD.NAME,CARD.NUMBER,DEFAULT_SOURCE\nfirst,Jane Doe,jane@example.com,cus_EXAMPLE1,9,2030,card_EXAMPLE1,J Doe,4242424242424242,card_EXAMPLE1\n",
	},
	{
		Name: "stripe-import",
		Doc:  "the form in which Stripe asks other processors for cards: `old_customer_id`, `old_card_id`, `card_number`, `card_exp_month`, `card_exp_year`, `name`",
		Text: `type: card
old_id: {column: old_card_id}
data:
  number: {column: card_number, as: digits}
  expiration_month: {column: card_exp_month, as: month}
  expiration_year: {column: card_exp_year, as: year}
metadata:
  customer_id: {column: old_customer_id}
  customer_name: {column: name}
`,
		Example: "old_customer_id,old_card_id,card_number,card_exp_month,card_exp_year,name\nold-1,oldcard-1,5555555555554444,1,31,Jane Doe\n",
	},
	{
		Name: "tokens",
		Doc:  "tokens of another vault, as lines of JSON with `id`, `type`, `data`: ids are kept, and `data` of type `card`",
		Text: `type: card
id: {column: id}
old_id: {column: id}
data:
  number: {column: data.number, as: digits}
  expiration_month: {column: data.expiration_month, as: month}
  expiration_year: {column: data.expiration_year, as: year}
`,
		Example: `{"id":"tok-example-1","type":"card","data":{"number":"4111111111111111","expiration_month":12,"expiration_year":2030}}` + "\n",
	},
}

// PresetNamed returns the mapping of a preset; nil when there is none.
func PresetNamed(name string) *Mapping {
	for _, p := range Presets {
		if p.Name == name {
			m, err := ParseMapping([]byte(p.Text))
			if err != nil {
				panic("bulkfile: a preset is not valid") // a test reads them all
			}
			return m
		}
	}
	return nil
}

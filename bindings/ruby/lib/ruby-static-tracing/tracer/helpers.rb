# frozen_string_literal: true

module StaticTracing
  module Tracer
    # Names of providers and probes for names of Ruby.
    module Helpers
      OPERATORS = {
        '[]' => 'at', '[]=' => 'set_at', '+' => 'plus', '-' => 'minus', '*' => 'times', '/' => 'divided', '%' => 'modulo',
        '**' => 'power', '==' => 'equal', '!=' => 'not_equal', '===' => 'case_equal', '=~' => 'match', '!~' => 'no_match',
        '<=>' => 'compare', '<' => 'less', '<=' => 'less_or_equal', '>' => 'greater', '>=' => 'greater_or_equal',
        '<<' => 'shift_left', '>>' => 'shift_right', '!' => 'not', '~' => 'complement', '&' => 'and', '|' => 'or',
        '^' => 'xor', '+@' => 'positive', '-@' => 'negative', '`' => 'backtick'
      }.freeze

      module_function

      # Shop::CartItem becomes shop_cart_item.
      def underscore(class_name)
        class_name.gsub('::', '_')
                  .gsub(/([A-Z]+)([A-Z][a-z])/, '\1_\2')
                  .gsub(/([a-z\d])([A-Z])/, '\1_\2')
                  .tr('-', '_')
                  .downcase
      end

      # The probe for a method. Tracers' languages know only letters, digits and underscores in names, so `save!` becomes
      # save_bang, `empty?` empty_p, `name=` set_name, and operators words.
      def probe_name(method)
        name = method.to_s
        return OPERATORS[name] if OPERATORS.key?(name)

        name = "set_#{name[0..-2]}" if name.end_with?('=')
        name = name.sub(/!\z/, '_bang').sub(/\?\z/, '_p')
        name.b.gsub(/[^A-Za-z0-9_]/n) { |byte| format('_%02x', byte.ord) }.force_encoding(Encoding::US_ASCII)
      end
    end
  end
end
